"""Sphinx: the pages in Markdown, the reference from the docstrings."""

import fedcore

project = "fedcore"
copyright = "fedcore's authors, BSD-3-Clause"
version = release = fedcore.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
]
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
nitpicky = False

autosummary_generate = True
autodoc_typehints = "none"  # shapes and types are in the docstrings
numpydoc_show_class_members = False
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_nav_level": 2, "navbar_end": ["theme-switcher"]}
html_sidebars = {"**": ["sidebar-nav-bs"]}
html_show_sourcelink = False
