"""A long directory of a user's in Windows, and the releases whose licence files lie deep."""

from __future__ import annotations

import pytest
from packaging.version import Version

from torchenv.catalogue import resources
from torchenv.system.disk import PathLength

SITE = (
    r"C:\Users\firstname.lastname\AppData\Local\Some Vendor\Product 5.12.2\lib\Python\envs"
    r"\torchenv-2026-11-30\Lib\site-packages"
)


# The numbers are those of the wheels; a directory of another system cannot be made here.
@pytest.mark.parametrize(
    ("release", "said", "too_many"),
    [
        ("2.15.0", "122 + 1 + 126 = 249 characters, of 259", 0),
        ("2.13.0", "122 + 1 + 167 = 290 characters, of 259", 31),
        ("2.12.1", "122 + 1 + 119 = 242 characters, of 259", 0),
    ],
)
def test_whether_a_release_fits_is_known_by_exact_numbers(release: str, said: str, too_many: int) -> None:
    (known,) = [item for item in resources.catalogue().releases if item.version == Version(release)]
    assert known.longest_path is not None
    length = PathLength(len(SITE), known.longest_path)
    assert (str(length), length.too_many, length.fits) == (said, too_many, too_many == 0)
