@rem Starts torchenv by the program that the installer wrote beside it.
@"%~dp0torchenv-entry.exe" %*
