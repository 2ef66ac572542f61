"""Asks the torch of the Python that runs this which devices it sees; prints one JSON object, last."""

import json
import sys

import torch

devices = []
for index in range(torch.cuda.device_count()):
    properties = torch.cuda.get_device_properties(index)
    said = {"index": index, "name": properties.name, "compute_capability": None, "gfx": None}
    if torch.version.hip:
        said["gfx"] = properties.gcnArchName.split(":")[0]
    else:
        said["compute_capability"] = f"{properties.major}.{properties.minor}"
    devices.append(said)
sys.stdout.write("\n" + json.dumps({"torch": torch.__version__, "devices": devices}) + "\n")
