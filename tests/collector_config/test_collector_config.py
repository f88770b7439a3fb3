"""What `collector-config` holds: known keys, known names, queries that parse; no container is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml
from clickhouse import ClickHouse
from collector_config.components import Config
from collectors import merged
from pydantic import ValidationError

from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.registry import attribute, attributes, instruments, wanted
from mttp.testing import OtlpReceiver

ROOT = Path(__file__).parents[2]
HOME = ROOT / "collector-config"
FILES = sorted(HOME.rglob("*.yaml"))
SECOND_WAYS = [HOME / name / "agent.yaml" for name in ("clickhouse", "kafka")]
"""What is merged with the agent's configuration."""
COUNTING = [HOME / name for name in ("gateway-lb.yaml", "dev/collector.yaml")]
"""The Collectors that make metrics of spans."""
COLLECTORS = [path for path in FILES if "\nservice:\n" in path.read_text()]
ALERTS = HOME / "prometheus/alerts.yaml"
DASHBOARDS = sorted((HOME / "dev/grafana/dashboards").glob("*.json"))
DOCS = [ROOT / "docs" / name for name in ("backends.md",)]
ATTRIBUTE = re.compile(r"\b(?:mttp|gen_ai|error)\.[a-z0-9_.]*[a-z0-9_]")


def relative(path: Path) -> str:
    """How a path is shown."""
    return str(path.relative_to(ROOT))


def is_known(name: str) -> bool:
    """Whether the registry has an attribute of this name, a template's included."""
    return attribute(name) is not None


def in_prometheus(name: str) -> set[str]:
    """What Prometheus calls a metric: the parts of a histogram each have a name."""
    instrument = instruments()[name]
    unit = {"s": "_seconds", "By": "_bytes"}.get(instrument.unit, "")
    plain = name.replace(".", "_") + unit
    if instrument.kind == "histogram":
        return {f"{plain}_{part}" for part in ("bucket", "sum", "count")}
    return {f"{plain}_total"} if instrument.kind == "counter" else {plain}


IN_PROMETHEUS = {known: name for name in instruments() for known in in_prometheus(name)}


def dashboard(path: Path) -> dict[str, Any]:
    """A dashboard."""
    return dict(json.loads(path.read_text()))


def targets(path: Path) -> Iterator[dict[str, Any]]:
    """The queries of a dashboard."""
    for panel in dashboard(path)["panels"]:
        yield from panel["targets"]


def rules() -> dict[str, str]:
    """The expressions of the alerts, and of what they are made of, by name."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule.get("alert") or rule["record"]: rule["expr"] for group in groups for rule in group["rules"]}


def promql() -> list[tuple[str, str]]:
    """Every PromQL expression, with where it is and its variables filled in."""
    asked = [
        (path.name, target["expr"]) for path in DASHBOARDS for target in targets(path) if "expr" in target
    ]
    return [(where, re.sub(r"\$\w+", ".*", expr)) for where, expr in [*asked, *rules().items()]]


def traceql() -> list[tuple[str, str]]:
    """Every TraceQL query, of dashboards and of the documentation."""
    found = [
        (path.name, target["query"])
        for path in DASHBOARDS
        for target in targets(path)
        if target.get("queryType") == "traceql"
    ]
    documented = re.findall(r"^```traceql\n(.*?)^```", (ROOT / "docs/backends.md").read_text(), re.M | re.S)
    return [*found, *(("backends.md", line) for block in documented for line in block.splitlines() if line)]


def configuration(path: Path) -> dict[str, Any]:
    """What a Collector runs by: the file itself, or for an agent's second way both files."""
    loaded = dict(yaml.safe_load(path.read_text()))
    return merged(configuration(HOME / "agent.yaml"), loaded) if path in SECOND_WAYS else loaded


def pipelines(path: Path) -> dict[str, Any]:
    """The pipelines of a configuration."""
    return dict(configuration(path)["service"]["pipelines"])


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_each_file_opens_with_what_it_is_for(path: Path) -> None:
    """
    And is YAML.
    """
    assert path.read_text().startswith("# ")
    assert isinstance(yaml.safe_load(path.read_text()), dict)


@pytest.mark.parametrize("path", COLLECTORS, ids=relative)
def test_a_collector_knows_every_key(path: Path) -> None:
    """
    Components by their current names, with keys that they have, in pipelines that name what is there.
    """
    Config.model_validate(configuration(path))


@pytest.mark.parametrize(
    "wrong",
    [
        {"exporters": {"otlp": {"endpoint": "x"}}},
        {"exporters": {"otlp_grpc": {"endpoint": "x", "sending_que": {}}}},
        {"receivers": {"otlp": {"protocols": {"grpc": {}}}}},
        {"processors": {"memory_limiter": {"check_interval": 1}}},
        {"processors": {"unused/x": {}}},
    ],
)
def test_a_wrong_key_is_found(wrong: dict[str, Any]) -> None:
    """
    Otherwise the test above would hold of anything.
    """
    good = yaml.safe_load((HOME / "agent.yaml").read_text())

    with pytest.raises(ValidationError):
        Config.model_validate({**good, **wrong})


@pytest.mark.parametrize("path", COLLECTORS, ids=relative)
def test_memory_is_limited_before_anything_else_is_done(path: Path) -> None:
    """
    A processor that holds spans back would fill it first; a reader of files or topics is held up instead.
    """
    for pipeline in pipelines(path).values():
        if pipeline["receivers"] == ["otlp"]:
            assert "memory_limiter" == pipeline["processors"][0]
        else:
            assert "memory_limiter" not in pipeline.get("processors", [])


def test_metrics_are_made_before_anything_is_sampled() -> None:
    """
    The sampler makes none, and what makes them samples nothing.
    """
    balancer, sampler = (configuration(HOME / f"gateway-{name}.yaml") for name in ("lb", "sampler"))

    assert "tail_sampling" not in balancer["processors"]
    assert "connectors" not in sampler


@pytest.mark.parametrize("path", COUNTING, ids=relative)
def test_what_is_made_of_spans_is_added_up_before_prometheus_sees_it(path: Path) -> None:
    """
    The connector says what one request came to; of such the exporter shows the last, or none.
    """
    metrics_of_spans = pipelines(path)["metrics/spans"]

    assert ["delta_to_cumulative"] == metrics_of_spans["processors"]
    assert ["prometheus"] == metrics_of_spans["exporters"]


@pytest.mark.parametrize("path", COUNTING, ids=relative)
def test_requests_at_once_are_counted_one_after_the_other(path: Path) -> None:
    """
    By `batch`, in a pipeline in which nothing but the connector could fail, as `batch` tells nobody.
    """
    counting = pipelines(path)["traces/metrics"]

    assert "forward" in pipelines(path)["traces"]["exporters"]
    assert "batch" not in pipelines(path)["traces"]["processors"]
    assert {"receivers": ["forward"], "processors": ["batch"], "exporters": ["signal_to_metrics"]} == counting


@pytest.mark.parametrize("path", COUNTING, ids=relative)
def test_a_span_that_is_not_understood_refuses_no_request(path: Path) -> None:
    """
    The sender would ask again for ever.
    """
    assert "ignore" == configuration(path)["connectors"]["signal_to_metrics"]["error_mode"]


@pytest.mark.parametrize("path", COUNTING, ids=relative)
def test_metrics_that_are_made_of_spans_tell_evaluation_from_training(path: Path) -> None:
    """
    By what the resource says, as those of training do by an attribute.
    """
    loaded = configuration(path)

    assert [a.RUN_KIND] == loaded["exporters"]["prometheus"]["resource_constant_labels"]["included"]
    for metric in loaded["connectors"]["signal_to_metrics"]["spans"]:
        assert {"key": a.RUN_KIND, "optional": True} in metric["include_resource_attributes"]


STORES = ("otlp_grpc/jaeger", "otlp_grpc/tempo")


@pytest.mark.parametrize("path", COLLECTORS, ids=relative)
def test_no_receiver_is_sent_more_than_it_takes_at_once(path: Path) -> None:
    """
    Stores take 4 MiB, our own receivers 64; and no less, since a single span beyond it is dropped.
    """
    for name, exporter in configuration(path)["exporters"].items():
        if name.startswith("otlp_grpc"):
            taken = (4 if name in STORES else 64) * 2**20
            assert 0.7 * taken < exporter["sending_queue"]["batch"]["max_size"] < taken, name


@pytest.mark.parametrize("path", COLLECTORS, ids=relative)
def test_every_receiver_takes_64_mib(path: Path) -> None:
    """
    Which those that send to it rely on.
    """
    for receiver in configuration(path)["receivers"].values():
        if "protocols" in receiver:
            protocols = receiver["protocols"]
            assert 64 == protocols["grpc"]["max_recv_msg_size_mib"]
            assert 64 * 2**20 == protocols.get("http", {}).get("max_request_body_size", 64 * 2**20)


LOSSLESS = {
    "agent.yaml": ["otlp_grpc"],
    "clickhouse/agent.yaml": ["otlp_grpc", "otlp_grpc/clickhouse"],
    "kafka/agent.yaml": ["otlp_grpc", "otlp_grpc/kafka"],
    "kafka.yaml": ["kafka"],
    "replay.yaml": ["otlp_grpc"],
    "gateway-lb.yaml": ["load_balancing"],
}
"""The exporters on the way to training data and to the samplers."""


@pytest.mark.parametrize("name", LOSSLESS)
def test_what_waits_is_on_disk_and_is_neither_dropped_nor_refused(name: str) -> None:
    """
    A full queue waits, and the receiver is asked again for ever.
    """
    loaded = configuration(HOME / name)

    for exporter in (loaded["exporters"][exporter] for exporter in LOSSLESS[name]):
        queue = exporter["sending_queue"]
        assert ("file_storage", "bytes", True) == (
            queue["storage"],
            queue["sizer"],
            queue["block_on_overflow"],
        )
        assert "0s" == exporter["retry_on_failure"]["max_elapsed_time"]
    assert "file_storage" in loaded["service"]["extensions"]


def test_a_balancer_keeps_nothing_for_a_single_sampler() -> None:
    """
    What waited for one that is gone would be lost with it; the queue on disk has it sent elsewhere.
    """
    to_each = configuration(HOME / "gateway-lb.yaml")["exporters"]["load_balancing"]["protocol"]["otlp"]

    assert to_each["sending_queue"] == {"enabled": False}
    assert "10s" == to_each["retry_on_failure"]["max_elapsed_time"]


def test_the_topic_takes_every_request_and_is_read_as_it_is_written() -> None:
    """
    A message is at most a request.
    """
    written = configuration(HOME / "kafka.yaml")["exporters"]["kafka"]
    read = configuration(HOME / "kafka/read.yaml")["receivers"]["kafka"]

    assert 64 * 2**20 == written["producer"]["max_message_bytes"]
    assert ([written["traces"]["topic"]], written["traces"]["encoding"]) == (
        read["traces"]["topics"],
        read["traces"]["encoding"],
    )


def test_the_development_stack_makes_the_metrics_that_the_gateway_makes() -> None:
    """
    What was tried on one machine is what will be seen of the cluster.
    """
    gateway, development = map(configuration, COUNTING)

    assert gateway["connectors"] == development["connectors"]
    for processor in ("batch", "delta_to_cumulative", "filter/made_of_spans"):
        assert gateway["processors"][processor] == development["processors"][processor]
    for pipeline in ("traces/metrics", "metrics/spans", "metrics"):
        assert pipelines(COUNTING[0])[pipeline] == pipelines(COUNTING[1])[pipeline]


@pytest.mark.parametrize("path", COLLECTORS, ids=relative)
def test_prometheus_can_ask_a_collector_about_itself(path: Path) -> None:
    """
    Alerts need it: what a Collector refuses or gives up is in no other metric.
    """
    (reader,) = configuration(path)["service"]["telemetry"]["metrics"]["readers"]

    assert {"host": "0.0.0.0", "port": 8888} == reader["pull"]["exporter"]["prometheus"]


@pytest.mark.parametrize(
    "path", [ALERTS, *COLLECTORS, *DASHBOARDS, *HOME.rglob("*.sql"), *DOCS], ids=relative
)
def test_every_attribute_and_metric_exists(path: Path) -> None:
    """
    Whatever a condition, a query, a table or a dashboard names is in the registry.
    """
    text = re.sub(r"mttp\.spans\b", "", path.read_text()) if path.suffix == ".sql" else path.read_text()
    text = re.sub(r"`?mttp\.((Route|configure|read|summarize|scan)\b|(episode|update)\()", "", text)
    found = set(ATTRIBUTE.findall(text)) - {"mttp.jsonl"}

    wrong = [name for name in sorted(found) if not is_known(name) and name not in instruments()]
    prefixes = {"mttp.reward.score", "mttp.metadata", "mttp.metric"}
    assert [] == [name for name in wrong if name not in prefixes]


def test_a_metric_that_is_made_of_spans_is_the_one_that_training_emits() -> None:
    """
    By name, unit, kind, and dimensions.
    """
    made = yaml.safe_load((HOME / "gateway-lb.yaml").read_text())["connectors"]["signal_to_metrics"]["spans"]

    for metric in made:
        instrument = instruments()[metric["name"]]
        kind = "histogram" if "histogram" in metric else "counter"
        assert (instrument.unit, instrument.kind, instrument.description) == (
            metric["unit"],
            kind,
            metric["description"],
        )


def test_samplers_match_spans_by_the_names_that_there_are() -> None:
    """
    A policy that no span matches would keep nothing, in silence.
    """
    text = (HOME / "gateway-sampler.yaml").read_text()
    (pattern,) = re.findall(r'IsMatch\(span\.name, "(.*)"\)', text)

    roots = (names.RUN, names.RUN_START, names.GROUP, names.UPDATE, names.ANNOTATE, names.EVAL_RUN)
    assert all(
        re.search(pattern, name) for name in [*roots, f"{names.RUN} cartpole", f"{names.EVAL_RUN} gsm"]
    )
    assert not any(re.search(pattern, name) for name in (names.STEP, f"{names.EPISODE} toy", names.REWARD))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_can_be_provisioned(path: Path) -> None:
    """
    It has a uid of its own, panels side by side, and data sources that are provisioned too.
    """
    found = dashboard(path)
    sources = yaml.safe_load((HOME / "dev/grafana/datasources/datasources.yaml").read_text())["datasources"]
    known = {(source["type"], source["uid"]) for source in sources}

    assert path.stem == found["uid"]
    assert len(found["panels"]) == len({panel["id"] for panel in found["panels"]})
    assert {(target["datasource"]["type"], target["datasource"]["uid"]) for target in targets(path)} <= known
    places = [panel["gridPos"] for panel in found["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    taken = [
        (x, y) for place in places for x in range(place["x"], place["x"] + place["w"]) for y in [place["y"]]
    ]
    assert len(taken) == len(set(taken))
    variables = {variable["name"] for variable in found["templating"]["list"]}
    assert variables >= set(re.findall(r"\$(\w+)", json.dumps(found["panels"])))


def test_promql_asks_for_metrics_that_there_are() -> None:
    """
    As the Prometheus exporter calls them, and by labels that they have.
    """
    labels = {key.replace(".", "_") for key, definition in attributes().items() if not definition.is_template}
    named = {name for _, expr in promql() for name in re.findall(r"\bmttp_\w+", expr)}

    assert set() == named - set(IN_PROMETHEUS) - labels
    assert len(named & set(IN_PROMETHEUS)) > 15


def test_promql_parses() -> None:
    """
    By Prometheus' own grammar.
    """
    parser = pytest.importorskip("promql_parser", reason="pip install promql-parser, as .ci/backends does")

    for _, expr in promql():
        parser.parse(expr)


def test_traceql_parses() -> None:
    """
    By the grammar of Grafana's editor.
    """
    home = os.environ.get("LEZER_HOME")
    if not home:
        pytest.skip("npm install @grafana/lezer-traceql, as .ci/backends does")
    script = (
        "import {parser} from '@grafana/lezer-traceql';"
        "for (const query of JSON.parse(process.argv[2])) { let wrong = 0;"
        "parser.parse(query).iterate({enter(node) { if (node.type.isError) wrong++; }});"
        "if (wrong) console.log(query); }"
    )
    queries = [re.sub(r"\$run", "4bf92f35", query) for _, query in traceql()]
    broken = "{ span.mttp.episode.return > > 1 }"
    program = Path(home) / "parse.mjs"
    program.write_text(script)

    done = subprocess.run(
        ["node", str(program), json.dumps([*queries, broken])], capture_output=True, text=True, check=True
    )

    assert [broken] == done.stdout.splitlines()
    assert len(queries) > 20


def test_compose_follows_its_schema() -> None:
    """
    That of the compose specification, which check-jsonschema has with it.
    """
    import jsonschema

    found = importlib.util.find_spec("check_jsonschema")
    if found is None or found.origin is None:
        pytest.skip("pip install check-jsonschema, as .ci/backends does")
    schema = next(Path(found.origin).parent.rglob("compose-spec.json"))

    jsonschema.validate(
        yaml.safe_load((HOME / "dev/compose.yaml").read_text()), json.loads(schema.read_text())
    )


def test_the_development_stack_is_pinned_limited_and_local() -> None:
    """
    Every image has a version, every service a limit, every port is this machine's own; every mount is there.
    """
    services = yaml.safe_load((HOME / "dev/compose.yaml").read_text())["services"]

    for service in services.values():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        assert re.fullmatch(r"\d+g", service["mem_limit"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        mounts = [volume.split(":")[0] for volume in service.get("volumes", [])]
        here = [mount for mount in mounts if mount.startswith(".") and mount != "./received"]
        assert all((HOME / "dev" / mount).exists() for mount in here)


def test_the_clickhouse_table_answers_its_queries() -> None:
    """
    In ClickHouse itself, embedded, on the spans of a small run as the Collector's exporter writes them.
    """
    pytest.importorskip("chdb", reason="pip install chdb, as .ci/backends does")
    import mttp

    server = ClickHouse()
    with mttp.configure("file://a.jsonl", run_id="a-run"):
        for number in range(4):
            about = {"env": "toy", "task": f"t{number % 2}", "group": "g"}
            with mttp.episode(**about) as episode:
                with episode.step() as step:
                    step.tokens(ids=[1, 2, 3])
                episode.reward(0.5, components={"correct": 0.5}, spec=mttp.model.Spec(name="s", version="1"))
                episode.end(outcome="success" if number else "failure")
        mttp.update(kl=0.01)
    server.insert(mttp.scan("a.jsonl", arrays=True))
    queries = (HOME / "clickhouse/queries.sql").read_text().split(";\n")
    answers = [server.ask(query) for query in queries if "SELECT" in query]

    assert [["a-run", "toy", "4", "0.5", "1", "0.75"]] == answers[0]
    assert [["s", "correct", "0.5", "4"]] == answers[3]
    assert [["g", "4", "0.5"]] == answers[4]
    assert [["a-run", "0", "0.01"]] == answers[7]
    assert [] == answers[9]


def test_a_long_episode_lacks_spans_only_if_it_lacks_some() -> None:
    """
    Of 1,500 steps, 500 are a row, and the part of another process says how many spans it has.
    """
    pytest.importorskip("chdb", reason="pip install chdb, as .ci/backends does")
    import mttp

    server = ClickHouse()
    with OtlpReceiver() as receiver:
        with mttp.configure(receiver.http_address):
            with mttp.episode(env="long") as episode:
                for _ in range(1500):
                    with episode.step():
                        pass
                carrier: dict[str, str] = {}
                mttp.inject(carrier)
            with mttp.extract(carrier) as remote, remote.step():
                pass
        spans = list(mttp.scan(receiver, arrays=True))
    *_, query = (HOME / "clickhouse/queries.sql").read_text().strip(";\n").split(";\n")
    trace = next(span.trace_id for span in spans if a.STEPS_COUNT in span.attributes)
    (part,) = {span.attributes[a.SEGMENT_ID] for span in spans if a.SEGMENT_ID in span.attributes}

    server.insert(spans)
    complete = server.ask(query)
    server.clear()
    server.insert(span for span in spans if span.name not in ("steps", "step"))
    lacking = server.ask(query)

    assert [] == complete
    assert [[trace, "", "1501", "1"], [trace, part, "2", "1"]] == lacking


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_panel_says_what_fills_it(path: Path) -> None:
    """
    Traces, metrics that the Collector makes of spans, or metrics of training: else it stays empty.
    """
    connector = yaml.safe_load((HOME / "dev/collector.yaml").read_text())["connectors"]["signal_to_metrics"]
    made = set().union(*(in_prometheus(metric["name"]) for metric in connector["spans"]))

    for panel in dashboard(path)["panels"]:
        asked = {
            name
            for target in panel["targets"]
            for name in re.findall(r"\bmttp_\w+", target.get("expr", ""))
            if name in IN_PROMETHEUS
        }
        source = "metrics that the Collector makes of spans" if asked <= made else "metrics of training"
        assert f"Source: {source if asked else 'traces in Tempo'}" in panel["description"], panel["title"]


@pytest.mark.parametrize("path", COUNTING, ids=relative)
def test_no_episode_counts_twice_where_training_sends_metrics(path: Path) -> None:
    """
    Of these, what is made of spans is dropped, and nothing else.
    """
    loaded = configuration(path)
    (rule,) = loaded["processors"]["filter/made_of_spans"]["metrics"]["metric"]
    pattern = re.compile(json.loads(re.fullmatch(r"IsMatch\(name, (\".*\")\)", rule)[1]))  # type: ignore[index]
    made = {metric["name"] for metric in loaded["connectors"]["signal_to_metrics"]["spans"]}

    assert made == {name for name in instruments() if pattern.search(name)}
    assert "filter/made_of_spans" in loaded["service"]["pipelines"]["metrics"]["processors"]


def test_a_double_is_compared_with_a_double() -> None:
    """
    TraceQL finds nothing where a double of the registry is compared with an integer.
    """
    compared = re.compile(r"span\.([a-z0-9_.]+) *(?:=|!=|[<>]=?) *(-?\d+)(?![\d.a-zµ])")
    pages = [*(ROOT / "docs").glob("*.md"), *DASHBOARDS, ROOT / "README.md"]

    wrong = [
        (path.name, key, literal)
        for path in pages
        for key, literal in compared.findall(path.read_text())
        if wanted(key) == "double"
    ]
    assert [] == wrong


def test_jaegers_links_search_for_attributes_of_the_convention() -> None:
    """
    Each link pattern searches for the value of the attribute that is clicked, in the traces of all times.
    """
    patterns = json.loads((HOME / "dev/jaeger-ui.json").read_text())["linkPatterns"]

    assert ["mttp.run.id", "mttp.task.id", "mttp.group.id"] == [pattern["key"] for pattern in patterns]
    for pattern in patterns:
        path, _, query = pattern["url"].partition("?")
        parameters = parse_qs(query.replace("#", "%23"))
        value = f"#{{{pattern['key']}}}"

        assert ("tags", "/search", True) == (pattern["type"], path, is_known(pattern["key"]))
        assert {pattern["key"]: value} == json.loads(parameters["tags"][0])
        assert (["mttp"], ["0"]) == (parameters["service"], parameters["start"])
        assert value in pattern["text"]


def test_the_containers_have_jaegers_links() -> None:
    """
    Jaeger reads the file that is mounted.
    """
    jaeger = yaml.safe_load((HOME / "dev/compose.yaml").read_text())["services"]["jaeger"]
    (volume,), (command,) = jaeger["volumes"], jaeger["command"]
    source, place, _ = volume.split(":")

    assert (HOME / "dev" / source).is_file()
    assert f"--set=extensions.jaeger_query.ui.config_file={place}" == command
