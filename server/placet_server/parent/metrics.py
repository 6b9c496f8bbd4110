"""The metrics of all children as one text, each sample labelled by its `process`."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

ANSWER_SECONDS = 2.0

_log = logging.getLogger("placet.metrics")


class ChildrenCollector(Collector):
    """Asks each child when it is asked, in the asker's thread. One that does not answer is left out."""

    def __init__(self, ports: Callable[[], Mapping[int, int]]) -> None:
        """`ports`: of the children that serve now, by their number."""
        self._ports = ports
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for number, port in self._ports().items():
            for family in text_string_to_metric_families(self._read(port)):
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                merged.samples += (_labelled(sample, str(number)) for sample in family.samples)
        yield from families.values()

    def _read(self, port: int) -> str:
        try:
            with self._opener.open(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_SECONDS) as response:
                text: str = response.read().decode()
        except OSError as error:
            _log.warning("a child's metrics cannot be read: %s", error)
            return ""
        return text


def _labelled(sample: Sample, number: str) -> Sample:
    return sample._replace(labels={**sample.labels, "process": number})
