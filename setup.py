"""Build the compiled kernels. Everything else is in pyproject.toml."""

import os
import sys
from copy import copy
from glob import glob
from sysconfig import get_config_var

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# kernel module -> the C files linked into it
KERNELS = {
    "_assign": ["csrc/fc_assign.c"],
    "_barycenter": ["csrc/fc_barycenter.c", "csrc/fc_assign.c"],
    "_compact": ["csrc/fc_compact.c"],
    "_dadil": ["csrc/fc_dadil.c"],
    "_heads": ["csrc/fc_heads.c"],
    "_iht": ["csrc/fc_iht.c", "csrc/fc_select.c", "csrc/fc_rng.c"],
    "_rng": ["csrc/fc_rng.c"],
    "_select": ["csrc/fc_select.c"],
    "_svm": ["csrc/fc_svm.c", "csrc/fc_rng.c"],
}

DEBUG = os.environ.get("FEDCORE_DEBUG") == "1"
STABLE_ABI = not DEBUG and not get_config_var("Py_GIL_DISABLED")

if sys.platform == "win32":
    cflags = ["/Od", "/Zi"] if DEBUG else ["/O2"]
else:
    cflags = ["-std=c11", "-fopenmp-simd", "-ffp-contract=off", "-fvisibility=hidden"]
    cflags += ["-O1", "-g"] if DEBUG else ["-O3", "-g0"]

extensions = [
    Extension(
        f"fedcore._kernels.{name}",
        sources=[f"fedcore/_kernels/{name}.pyx", *sources],
        include_dirs=["csrc"],
        depends=glob("csrc/*.[hi]*"),
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE_ABI else [],
        py_limited_api=STABLE_ABI,
        extra_compile_args=cflags,
    )
    for name, sources in KERNELS.items()
]


class BuildInParallel(build_ext):
    """Extensions share C files: each has its own folder of objects, or they race."""

    def build_extension(self, ext):
        own = copy(self)
        own.build_temp = os.path.join(self.build_temp, ext.name)
        build_ext.build_extension(own, ext)


setup(
    cmdclass={"build_ext": BuildInParallel},
    ext_modules=cythonize(
        extensions,
        # Cython looks at dates only, so each set of directives has its own folder.
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "initializedcheck": DEBUG,
            "wraparound": False,
            "cdivision": True,
            "freethreading_compatible": True,
            "auto_pickle": False,
            "autotestdict": False,  # else stubtest reports a __test__ attribute
        },
    ),
    options={
        "bdist_wheel": {"py_limited_api": "cp311"} if STABLE_ABI else {},
        "build_ext": {"parallel": os.cpu_count()},
    },
)
