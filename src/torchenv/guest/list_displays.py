"""Lists Windows' display adapters, one `name|PCI id` a line."""

import ctypes
import sys


class DisplayDevice(ctypes.Structure):
    """DISPLAY_DEVICEW of wingdi.h."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("device_name", ctypes.c_wchar * 32),
        ("device_string", ctypes.c_wchar * 128),
        ("state_flags", ctypes.c_uint32),
        ("device_id", ctypes.c_wchar * 128),
        ("device_key", ctypes.c_wchar * 128),
    )


if sys.platform == "win32":
    device = DisplayDevice(size=ctypes.sizeof(DisplayDevice))
    number = 0
    while ctypes.windll.user32.EnumDisplayDevicesW(None, number, ctypes.byref(device), 0):
        sys.stdout.write(f"{device.device_string}|{device.device_id}\n")
        number += 1
