"""Says what the Python that runs this is, one `key value` a line; it must run on Python 3.8."""

import os
import sys

if hasattr(os, "uname"):
    machine = os.uname().machine
else:
    import sysconfig

    machine = sysconfig.get_platform().split("-", 1)[-1]  # win-amd64
if machine == "x86_64" and sys.maxsize < 2**32:
    machine = "i686"

free_threaded = False
if sys.version_info >= (3, 13):
    # Not from the name of the file or of the library: only the build knows.
    import sysconfig

    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

version = ".".join(str(part) for part in sys.version_info[:3])
if sys.version_info.releaselevel != "final":
    version += sys.version_info.releaselevel.replace("candidate", "rc")
    version += str(sys.version_info.serial)

sys.stdout.write(f"version {version}\n")
sys.stdout.write(f"implementation {sys.implementation.name}\n")
sys.stdout.write(f"free_threaded {free_threaded}\n")
sys.stdout.write(f"machine {machine}\n")
sys.stdout.write(f"conda {os.path.isdir(sys.base_prefix + '/conda-meta')}\n")
sys.stdout.write(f"prefix {sys.base_prefix}\n")
