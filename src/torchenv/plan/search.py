"""One walk through the builds that a host might take, which remembers what was not chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from torchenv.catalogue.builds import Backend, Cuda
from torchenv.catalogue.releases import Release
from torchenv.plan import refusals
from torchenv.plan.devices import Considered, Device, consider
from torchenv.plan.needs import (
    refusal_of_devices,
    refusal_of_mps,
    refusal_of_packages,
    refusal_of_system,
)
from torchenv.plan.python import choose_python
from torchenv.plan.values import Build, Question, Refusal, Rejection, Remark, Wish
from torchenv.system.addresses import TorchIndex


@dataclass(slots=True)
class Search:
    """A walk for one question; `rejected` grows with every build that does not suit."""

    ask: Question
    considered: Considered
    rejected: list[Rejection] = field(default_factory=list)

    def first(self, releases: Iterable[Release]) -> Build | None:
        """Take the first build of the first release that suits."""
        for release in releases:
            if build := self._of_release(release):
                return build
        return None

    def for_cpu(self) -> Search:
        """Begin a walk for a host whose devices the user agrees to leave unused."""
        ask = replace(self.ask, wish=replace(self.ask.wish, backends=()))
        names = ", ".join(device.name for device in self.considered.devices) or "the accelerator"
        remark = Remark("accelerator-unused", f"{names} will not be used: --accept-cpu was given")
        return Search(ask, Considered(vendor="cpu", remarks=(*self.considered.remarks, remark)))

    def serving(self, release: Release, devices: Sequence[Device]) -> Build | None:
        """Find the first build of a release that serves some of the devices; nothing is remembered."""
        answers = (self._examine(release, backend, devices) for backend in self._order_backends(release))
        return next((answer for answer in answers if isinstance(answer, Build)), None)

    def find_unrestricted(self, releases: Iterable[Release]) -> Build | None:
        """Find what would be taken if no backend had been asked for; nothing is remembered."""
        return self._find_with(releases, backends=(), by_hand=False)

    def find_by_hand(self, tag: str, releases: Iterable[Release]) -> Build | None:
        """Find what would be taken if this backend had been named; nothing is remembered."""
        return self._find_with(releases, backends=(tag,), by_hand=True)

    def for_mac(self, *, accept_cpu: bool) -> Search:
        """Begin a walk in which the GPU of a Mac may stay unused, or may not."""
        wish = replace(self.ask.wish, accept_cpu=accept_cpu)
        return Search(replace(self.ask, wish=wish), self.considered)

    def _find_with(
        self, releases: Iterable[Release], *, backends: tuple[str, ...], by_hand: bool
    ) -> Build | None:
        wish = replace(self.ask.wish, backends=backends, by_hand=by_hand)
        # Which devices count, and whether any may be chosen for, depends on the backends that are named.
        considered = consider(self.ask.host, wish, self.ask.catalogue)
        if considered.blocked is not None:
            return None
        return Search(replace(self.ask, wish=wish), considered).first(releases)

    def _of_release(self, release: Release) -> Build | None:
        chosen: Build | None = None
        tried = self._order_backends(release)
        for backend in tried:
            if chosen is not None:
                self._reject(release, backend, refusals.refuse_second(chosen.backend.tag))
                continue
            answer = self._examine(release, backend, self.considered.devices)
            if isinstance(answer, Refusal):
                self._reject(release, backend, answer)
            else:
                chosen = answer
        for backend in release.backends:
            # The package index's build may be of a kind for which there is no device here.
            if backend not in tried and (refusal := self._refusal_of_kind(backend)):
                self._reject(release, backend, refusal)
        return chosen

    def _order_backends(self, release: Release) -> list[Backend]:
        """Put the builds for this vendor in the order in which they are tried."""
        ask, vendor = self.ask, self.considered.vendor
        if ask.indexes.unreachable or vendor == "apple":
            tag = release.package_index.get(ask.host.platform, "cpu")
            backend = release.backend(tag)
            return [backend] if backend and self._may_come_from_package_index(backend) else []
        builds = [
            backend for backend in release.backends if backend.vendor == vendor and self._is_allowed(backend)
        ]
        default = release.defaults.get(vendor)
        builds.sort(key=lambda backend: backend.tag != default)
        newest = self._newest(builds) if ask.wish.prefer == "newest" else None
        if newest is not None:
            builds.sort(key=lambda backend: backend != newest)
        return builds

    def _newest(self, builds: list[Backend]) -> Backend | None:
        # The catalogue lists the builds of a kind from the oldest to the newest.
        kind = sorted(builds, key=lambda backend: isinstance(backend.needs, Cuda) and backend.needs.version)
        if not kind:
            return None
        newest, driver = kind[-1], self.ask.host.nvidia.driver
        if isinstance(newest.needs, Cuda):
            paired = newest.needs.paired
            if driver is None or paired is None or driver < paired:
                return None
        return newest

    def _is_allowed(self, backend: Backend) -> bool:
        return not self.ask.wish.backends or backend.tag in self.ask.wish.backends

    def _may_come_from_package_index(self, backend: Backend) -> bool:
        vendor = self.considered.vendor
        return self._is_allowed(backend) and vendor in {"apple", "cpu", backend.vendor}

    def _refusal_of_kind(self, backend: Backend) -> Refusal | None:
        """Return why a build that was not tried is not for this host."""
        vendor, wish = self.considered.vendor, self.ask.wish
        if not self._is_allowed(backend):
            return refusals.refuse_excluded(wish.backends, by_hand=wish.by_hand)
        if self.ask.indexes.unreachable:
            return refusals.refuse_unreachable()
        if vendor in {backend.vendor, "apple"}:
            return None
        return refusals.refuse_other_maker(backend.vendor, vendor)

    def _examine(self, release: Release, backend: Backend, devices: Sequence[Device]) -> Build | Refusal:
        ask, wish = self.ask, self.ask.wish
        package_index = ask.indexes.unreachable or self.considered.vendor == "apple"
        refusal = refusal_of_system(release, backend, ask)
        if refusal is None and self.considered.vendor == "apple" and not wish.accept_cpu:
            refusal = refusal_of_mps(release, ask.host)
        if refusal is None:
            refusal = refusal_of_devices(backend, devices, ask)
        if refusal is None:
            refusal = refusal_of_packages(release, backend, ask, package_index=package_index)
        if refusal is not None:
            return refusal
        python = choose_python(ask, release, backend, package_index=package_index)
        if isinstance(python, Refusal):
            return python
        index = (wish.torch_index or TorchIndex(ask.catalogue.index_root)).at(backend.tag)
        if index is None and not package_index:
            said = f"[index.torch] names no address for {backend.tag}"
            return Refusal("index-lacks-package", said)
        return Build(
            release=release,
            backend=backend,
            index=None if package_index else index,
            python=python,
            requirements=_requirements(release, backend, wish, package_index=package_index),
            unproven=self.considered.expected,
        )

    def _reject(self, release: Release, backend: Backend, refusal: Refusal) -> None:
        self.rejected.append(Rejection.of(release, backend.tag, refusal))


def _requirements(release: Release, backend: Backend, wish: Wish, *, package_index: bool) -> tuple[str, ...]:
    # The package index carries no local labels, so a label would match nothing there.
    label = f"+{backend.local}" if backend.local and not package_index else ""
    companions = (f"{name}=={release.companions[name].version}" for name in wish.packages)
    return (f"torch=={release.version}{label}", *companions)
