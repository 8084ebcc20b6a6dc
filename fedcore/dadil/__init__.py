"""Dataset dictionary learning."""
