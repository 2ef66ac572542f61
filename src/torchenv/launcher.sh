#!/bin/sh
# Starts torchenv on the Python that it is installed for, isolated: a PYTHONHOME or PYTHONPATH that leads astray
# must not keep it from saying so.
here=$0
while [ -L "$here" ]; do
    link=$(readlink "$here")
    case $link in
        /*) here=$link ;;
        *) here=${here%/*}/$link ;;
    esac
done
case $here in
    */*) beside=${here%/*} ;;
    *) beside=. ;;
esac
if [ -x "$beside/python3" ] && { [ -f "$beside/../pyvenv.cfg" ] || [ -d "$beside/../conda-meta" ]; }; then
    exec "$beside/python3" -I -m torchenv "$@"
fi
# Installed for a user or for the whole system: only what the installer wrote knows the Python.
unset PYTHONHOME
exec "$beside/torchenv-entry" "$@"
