"""Compare the catalogue with what PyTorch's indexes really serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.version import Version

from torchenv.index.pages import Fetch, ProjectPage, Wheel, project
from torchenv.system.addresses import TorchIndex
from torchenv.system.values import frozen

if TYPE_CHECKING:
    from torchenv.catalogue.builds import Backend
    from torchenv.catalogue.releases import Catalogue, Companion, Release


@frozen(kw_only=True)
class CatalogueDifference:
    """One thing that the catalogue says otherwise than the index.

    Codes: release-new, backend-missing, backend-new, platform-missing, platform-new, python-missing,
    python-new, companion-missing, companion-new. `subject` is the platform, Python or companion meant,
    `labels` are those that the wheels of a new release carry.
    """

    code: str
    torch: Version
    backend: str | None
    message: str
    subject: str | None = None
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"torch {self.torch}" if self.backend is None else f"torch {self.torch} ({self.backend})"
        return f"{where}: {self.message}"


def check(
    catalogue: Catalogue, fetch: Fetch, mirror: TorchIndex | None = None
) -> tuple[CatalogueDifference, ...]:
    """Read the project pages of torch and its companions on every backend's index, and compare.

    `mirror` stands in place of PyTorch's own index. Raises `ToolFailed` where it cannot be reached.
    """
    pages = _Pages(mirror or TorchIndex(catalogue.index_root), fetch)
    found = list(_news(catalogue, pages))
    for release in catalogue.releases:
        for backend in release.backends:
            found += _of_backend(release, backend, pages, left_out=frozenset(catalogue.no_wheels))
    return tuple(found)


class _Pages:
    """Project pages, each fetched once."""

    def __init__(self, index: TorchIndex, fetch: Fetch) -> None:
        self._index = index
        self._fetch = fetch
        self._known: dict[tuple[str, str], ProjectPage | None] = {}

    def wheels(self, tag: str, name: str, version: Version) -> tuple[Wheel, ...]:
        page = self.page(tag, name)
        return () if page is None else page.of(version)

    def page(self, tag: str, name: str) -> ProjectPage | None:
        if (tag, name) not in self._known:
            index = self._index.at(tag)
            self._known[tag, name] = None if index is None else project(index, name, self._fetch)
        return self._known[tag, name]


def _news(catalogue: Catalogue, pages: _Pages) -> Iterator[CatalogueDifference]:
    # The root's own page of torch lists the wheels of all backends, told apart by their local labels.
    page = pages.page("", "torch")
    released = {release.version: release for release in catalogue.releases}
    oldest = min(released)
    seen = set() if page is None else page.versions
    seen |= {
        version for tag in catalogue.tags if (one := pages.page(tag, "torch")) for version in one.versions
    }
    for version in sorted({Version(item.public) for item in seen}, reverse=True):
        labels = {item.local for item in seen if item.local and Version(item.public) == version}
        if version.is_prerelease or version < oldest:
            continue
        if version not in released:
            said = f"is on the index and not in the catalogue ({', '.join(sorted(labels)) or 'no label'})"
            yield CatalogueDifference(
                code="release-new",
                torch=version,
                backend=None,
                message=said,
                labels=tuple(sorted(labels)),
            )
            continue
        known = {backend.local for backend in released[version].backends}
        for label in sorted(labels - known):
            said = "is on the index and not in the catalogue"
            yield CatalogueDifference(code="backend-new", torch=version, backend=label, message=said)


def _of_backend(
    release: Release, backend: Backend, pages: _Pages, left_out: frozenset[str]
) -> Iterator[CatalogueDifference]:
    def differs(code: str, message: str, subject: str | None = None) -> CatalogueDifference:
        tag = backend.tag
        return CatalogueDifference(
            code=code, torch=release.version, backend=tag, message=message, subject=subject
        )

    # macOS wheels carry no label.
    labels = {backend.local, None}
    wheels = [
        wheel
        for wheel in pages.wheels(backend.tag, "torch", release.version)
        if wheel.version.local in labels
    ]
    if not wheels:
        yield differs("backend-missing", "is in the catalogue and not on the index")
        return
    served = frozenset(name for wheel in wheels for name in wheel.platforms)
    for platform in sorted(backend.platforms - served):
        yield differs("platform-missing", f"has no wheel for {platform}", platform)
    for platform in sorted(served - backend.platforms - left_out):
        yield differs("platform-new", f"has wheels for {platform}, which is not listed", platform)
    # macOS takes its wheels from the package index, which is not asked here.
    for platform in sorted(
        platform for platform in backend.platforms & served if not platform.startswith("darwin")
    ):
        here = [wheel for wheel in wheels if platform in wheel.platforms]
        pythons = frozenset(python for item in here for python in item.pythons)
        listed = frozenset(release.pythons_of(backend, platform))
        for python in sorted(listed - pythons, key=by_number):
            yield differs("python-missing", f"has no wheel for Python {python} on {platform}", python)
        for python in sorted(pythons - listed, key=by_number):
            said = f"has a wheel for Python {python} on {platform}, which is not listed"
            yield differs("python-new", said, python)
    for companion in release.companions.values():
        yield from _of_companion(release, backend, companion, pages)


def _of_companion(
    release: Release, backend: Backend, companion: Companion, pages: _Pages
) -> Iterator[CatalogueDifference]:
    there = bool(pages.wheels(backend.tag, companion.name, companion.version))
    said = companion.exists(backend.tag)
    if there == said:
        return
    what = f"{companion.name} {companion.version}"
    presence = "is on the index" if there else "is not on the index"
    thought = {True: "lists it", False: "says there is none", None: "does not know"}[said]
    yield CatalogueDifference(
        code="companion-new" if there else "companion-missing",
        torch=release.version,
        backend=backend.tag,
        message=f"{what} {presence}, and the catalogue {thought}",
        subject=companion.name,
    )


def by_number(python: str) -> tuple[Version, bool]:
    """Order Pythons such as `3.9`, `3.14` and `3.14t` by their numbers."""
    return Version(python.rstrip("t")), python.endswith("t")
