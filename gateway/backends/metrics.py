"""The figures in Prometheus' text format: a registry of its own for each gateway, read when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from ..service.gateway import Gateway
from ..service.tally import Histogram, cumulated
from .metrics_table import TABLE, Metric, Values


class Metrics:
    """``text`` costs a few milliseconds of the loop; nothing is computed while nobody asks."""

    def __init__(self, gateway: Gateway) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_OfGateway(gateway))
        ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _OfGateway(Collector):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def describe(self) -> Iterable[Family]:
        return [_family(metric, ()) for metric in TABLE]

    def collect(self) -> Iterable[Family]:
        return [_family(metric, metric.read(self._gateway)) for metric in TABLE]


def _family(metric: Metric, values: Values) -> Family:
    help_, labels = metric.meaning, metric.labels
    if metric.kind == "histogram":
        histograms = HistogramMetricFamily(metric.name, help_, labels=labels)
        for words, value in values:
            assert isinstance(value, Histogram)
            buckets = [("+Inf" if math.isinf(bound) else repr(bound), count) for bound, count in cumulated(value)]
            histograms.add_metric(words, buckets, value.total)
        return histograms
    family = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(metric.name, help_, labels=labels)
    for words, value in values:
        assert not isinstance(value, Histogram)
        family.add_metric(words, float(value))
    return family


def catalog() -> list[tuple[str, str, tuple[str, ...], str]]:
    """``(name, type, labels, meaning)`` of everything that ``/metrics`` can show."""
    ours = [(f"{m.name}_total" if m.kind == "counter" else m.name, m.kind, m.labels, m.meaning) for m in TABLE]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    names = [(sample.name, family.type, (), family.documentation) for family in registry.collect() for sample in family.samples]
    return [*ours, *names]
