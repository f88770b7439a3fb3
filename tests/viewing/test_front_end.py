"""Reports and live pages in a browser: what a reader does, with the keyboard too, in light and dark."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from polling import SECONDS, eventually
from viewing.recorded import HOSTILE, pieces, poles, record, seeds

import mttp
from mttp.cli.files import LateFactsFile
from mttp.viewing import report
from mttp.viewing.labeling import Labeling
from mttp.viewing.live import LivePages
from mttp.viewing.server import serve

pytestmark = pytest.mark.browser
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NOTICED = (
    "overview: #/overview",
    "list: #/episodes",
    "episode: #/episode/{0}",
    "tokens: #/episode/{0}?step=1",
    "side by side: #/compare/{0}/{1}",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests; Debian's package `chromium` has it."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    assert found, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of a training run and of one with arrays."""
    place = tmp_path_factory.mktemp("reports")
    record(f"{place}/base.jsonl")
    record(f"{place}/new.jsonl", shift=0.3)
    poles(f"{place}/poles.jsonl")
    report(f"{place}/new.jsonl", baseline=f"{place}/base.jsonl", pieces=pieces).write(place / "new.html")
    report(f"{place}/poles.jsonl").write(place / "poles.html")
    return place


@pytest.fixture(scope="module")
def ids(folder: Path) -> list[str]:
    """Trace ids of the training run, in order."""
    return [one.trace_id for one in mttp.read(folder / "new.jsonl")]


class Opened:
    """A page, with what went wrong in it."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page = context.new_page()
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self.page.on(
            "console", lambda one: self.wrong.append(one.text) if one.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda one: self.wrong.append(str(one)))
        self.page.on("request", lambda one: self.requests.append(one.url))
        self.address = address
        self.go("#/overview")

    def go(self, place: str) -> None:
        self.page.goto(self.address + place)
        self.page.wait_for_selector("main > *")


@pytest.fixture
def opened(browser: Browser, folder: Path) -> Iterator[Opened]:
    """The report of the training run; no test leaves an error in the console, or asks another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Opened(context, (folder / "new.html").as_uri())
    yield found
    context.close()
    assert [] == found.wrong
    assert {found.address} == {url.partition("#")[0] for url in found.requests if not url.startswith("data:")}


def rows(page: Page) -> list[str]:
    return [str(one.get_attribute("data-episode")) for one in page.locator("tr[data-episode]").all()]


def column(page: Page, label: str) -> list[str]:
    heads = [one.inner_text().rstrip(" ▲▼") for one in page.locator(".rows thead th").all()]
    place = heads.index(label) + 1
    return [one.inner_text() for one in page.locator(f".rows tbody tr td:nth-child({place})").all()]


def test_the_overview_shows_charts_findings_and_the_baseline(opened: Opened, folder: Path) -> None:
    """
    What differs from the baseline first; charts are drawn when they are seen, and words in tables stay whole.
    """
    page = opened.page
    titles = [one.inner_text() for one in page.locator("section h2").all()]
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator("svg").first).to_be_visible()

    assert ["Summary", "Against the baseline", "Over time"] == titles[:3]
    assert {"Diagnosis", "Distributions", "Graders", "Slices", "Updates", "Groups", "Runs"} <= {*titles}
    expect(page.get_by_text("config").first).to_be_visible()
    expect(page.get_by_role("heading", name="What differs between the runs")).to_be_visible()
    assert page.locator("figure").count() >= 8
    assert 0 == page.locator("figure:not(:has(figcaption))").count()
    numbers = page.get_by_role("cell", name="39 and 39").first.bounding_box()
    assert numbers is not None
    assert numbers["height"] < 60

    (run,) = run_ids(folder / "new.jsonl")
    opened.go(f"#/overview?run={run}")
    expect(page.locator(".picked")).to_contain_text("Only for all runs: the comparison with the baseline.")


def test_curves_change_their_axis_and_are_hidden(browser: Browser, tmp_path: Path) -> None:
    """
    For all charts at once; by mouse and by keyboard.
    """
    for setting in ("slow", "fast"):
        with mttp.configure(f"file://{tmp_path}/{setting}.jsonl", run=setting):
            for number in range(1, 5):
                with mttp.episode(env="e") as episode, episode.step() as step:
                    step.reward(float(number))
    report([f"{tmp_path}/slow.jsonl", f"{tmp_path}/fast.jsonl"]).write(tmp_path / "seeds.html")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = Opened(context, (tmp_path / "seeds.html").as_uri())
    page = opened.page
    section = page.locator("#section-returns")
    section.scroll_into_view_if_needed()
    expect(section.get_by_text("episode →").first).to_be_visible()

    section.get_by_label("horizontal axis").select_option("steps")
    expect(section.get_by_text("environment steps →").first).to_be_visible()
    section.get_by_label("logarithmic scale").check()
    expect(section.locator("svg").first).to_be_visible()

    button = section.get_by_role("button", name="slow").first
    button.press("Enter")
    expect(section.get_by_role("button", name="slow").first).to_have_attribute("aria-pressed", "false")
    expect(section.get_by_role("button", name="slow").first).to_be_focused()
    section.locator("summary").first.click()
    expect(section.locator("figure tbody td:first-child").first).to_have_text("fast")
    assert {"fast"} == {cell.inner_text() for cell in section.locator("figure tbody td:first-child").all()}
    assert [] == opened.wrong
    context.close()


@contextmanager
def shown_as(browser: Browser, folder: Path, how: str, width: int = 1280) -> Iterator[Opened]:
    """The recordings of a folder as a report or as live pages; no test leaves an error in the console."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    if how == "report":
        report(str(folder)).write(folder / "all.html")
        found = Opened(context, (folder / "all.html").as_uri())
        yield found
    else:
        with closing(LivePages([str(folder)])) as pages:
            pages.start()
            while not (pages._index.is_read and pages._diagnoses):
                time.sleep(0.02)
            with closing(serve(pages, "127.0.0.1", 0)) as server:
                found = Opened(context, f"http://127.0.0.1:{server.port}/")
                yield found
    context.close()
    assert [] == found.wrong


def assert_accessible(page: Page) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        faults = Axe().run(page).response["violations"]
        assert [] == [(fault["id"], fault["nodes"][0]["html"][:200]) for fault in faults]


def run_ids(folder: Path) -> list[str]:
    """Ids of the runs in order of start."""
    return [run.id for run in mttp.read(folder).runs]


@pytest.mark.parametrize("how", ["report", "view"])
def test_all_is_of_the_runs_that_are_picked(browser: Browser, tmp_path: Path, how: str) -> None:
    """
    By mouse and by keyboard, on every page; an address has the choice, and environments are not pooled.
    """
    seeds(str(tmp_path))
    slow, other_slow, fast, _ = run_ids(tmp_path)
    with shown_as(browser, tmp_path, how) as opened:
        page = opened.page
        summary = page.locator("#section-summary")
        expect(summary).to_contain_text("environments")
        assert "mean return" not in summary.inner_text()
        page.locator(f"#pick-{slow}").check()
        expect(summary).to_contain_text("mean return")
        expect(summary).to_contain_text("n=12")
        assert f"run={slow}" in page.url
        page.locator(f"#pick-{fast}").press("Space")
        expect(page.locator(".picked")).to_contain_text("Of 4 runs 2 picked")
        expect(page.locator(f"#pick-{fast}")).to_be_focused()
        legend = page.locator("#section-returns .legend").first
        assert {"slow, desk", "fast, lab"} == {*legend.locator("li").all_inner_texts()}
        assert 2 == legend.locator("li").count()
        assert 4 == page.locator("#section-runs tbody").first.locator("tr").count()
        assert_accessible(page)

        page.keyboard.press("e")
        expect(page.locator("p.count")).to_have_text(re.compile("^24 episodes"))
        assert {slow, fast} == {*column(page, "run")}
        address = page.url
        page.get_by_role("button", name="All runs").click()
        expect(page.locator("p.count")).to_have_text(re.compile("^48 episodes"))
        opened.go(address.partition(opened.address)[2])
        expect(page.locator("p.count")).to_have_text(re.compile("^24 episodes"))
        page.keyboard.press("o")
        expect(page.locator(f"#pick-{slow}")).to_be_checked()
        expect(page.locator(f"#pick-{other_slow}")).not_to_be_checked()


@pytest.mark.parametrize("how", ["report", "view"])
def test_picked_seeds_of_a_name_are_one_curve_with_a_band(browser: Browser, tmp_path: Path, how: str) -> None:
    """
    As when all runs are shown.
    """
    seeds(str(tmp_path))
    slow, other_slow, *_ = run_ids(tmp_path)
    with shown_as(browser, tmp_path, how) as opened:
        opened.go(f"#/overview?run={slow}&run={other_slow}")
        expect(opened.page.locator("#section-summary")).to_contain_text("n=24")
        expect(opened.page.locator("#section-returns .note").first).to_contain_text(
            "Mean of 2 runs, 95 % t interval"
        )


def test_curves_are_zoomed_and_have_marks(browser: Browser, tmp_path: Path) -> None:
    """
    By drag, by keys and by buttons; the address has the part, and links keep it.
    """
    seeds(str(tmp_path), number=1, episodes=80)
    (tmp_path / "fast-0.jsonl").unlink()
    with shown_as(browser, tmp_path, "report") as opened:
        page = opened.page
        chart = page.locator("#section-returns .chart").first
        expect(chart.locator(".versions line")).to_have_count(10)
        page.get_by_text("Marked: ").click()
        expect(page.locator(".marks li").filter(has_text="policy v2").first).to_contain_text(
            "version 2 of 20"
        )
        box = chart.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 80, steps=4)
        page.mouse.up()
        expect(page).to_have_url(re.compile("zoom=episodes"))
        assert 2 <= chart.locator(".versions line").count() < 6
        assert_accessible(page)

        chart.press("0")
        expect(chart).to_be_focused()
        assert "zoom=" not in page.url
        chart.press("+")
        chart.press("ArrowLeft")
        first, last = map(float, re.findall(r"zoom=episodes%7E([\d.]+)%7E([\d.]+)", page.url)[0])
        assert (first, last) == (10.875, 50.625) or last - first < 45
        page.get_by_role("link", name="Updates").first.click()
        assert "zoom=episodes" in page.url
        opened.go(page.url.partition(opened.address)[2])
        expect(chart.locator(".versions line").first).to_be_attached()
        assert chart.locator(".versions line").count() < 10
        page.get_by_role("button", name="Show the whole axis").first.click()
        page.get_by_label("marks").first.uncheck()
        expect(chart.locator(".versions")).to_have_count(0)
        assert "marks=no" in page.url


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("how", ["report", "view"])
def test_an_update_has_a_page(browser: Browser, tmp_path: Path, how: str, width: int) -> None:
    """
    With numbers, groups and what was discarded; from curves, lists, groups and episodes, and by key.
    """
    seeds(str(tmp_path), number=1)
    (slow, _) = run_ids(tmp_path)
    with shown_as(browser, tmp_path, how, width) as opened:
        page = opened.page
        opened.go(f"#/episodes?run={slow}&filter=update%3D1")
        expect(page.locator("p.count")).to_have_text(re.compile("^4 of 12 episodes"))
        page.locator(".rows a[href*='#/update/']").first.click()
        expect(page.locator("h1")).to_have_text("Update 1 of slow")
        text = page.locator("main").inner_text()
        assert {"kl", "loss", "policy version", "g1", "stale"} <= {*re.split(r"[\n\t]+", text)}
        assert "v1 → v2" in text
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert_accessible(page)

        page.keyboard.press("j")
        expect(page.locator("h1")).to_have_text("Update 2 of slow")
        page.keyboard.press("k")
        expect(page.locator("h1")).to_have_text("Update 1 of slow")
        page.get_by_role("link", name="g1", exact=True).click()
        expect(page.locator("h1")).to_have_text("Group g1")
        page.get_by_role("link", name="update 1").click()
        expect(page.locator("h1")).to_have_text("Update 1 of slow")
        page.get_by_role("link", name="Its episodes as a list").click()
        page.locator("tr[data-episode]").first.click()
        page.get_by_role("link", name="update 1").click()
        expect(page.locator("h1")).to_have_text("Update 1 of slow")
        opened.go(f"#/overview/updates?run={slow}")
        chart = page.locator("#section-updates .chart").first
        chart.scroll_into_view_if_needed()
        expect(chart.locator("svg")).to_be_visible()
        box = chart.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 15, box["y"] + 90)
        page.mouse.down()
        page.mouse.up()
        expect(page.locator("h1")).to_have_text("Update 2 of slow")
        opened.go(f"#/update/{slow}/77")
        expect(page.get_by_role("alert")).to_contain_text("update 77")
        opened.wrong[:] = [message for message in opened.wrong if "404" not in message]


def test_the_overview_of_a_run_with_groups_is_short(browser: Browser, tmp_path: Path) -> None:
    """
    Below 4,000 pixels for 400 groups; on a phone, reward and outcome of an episode are on the screen.
    """
    seeds(str(tmp_path), number=1, episodes=1600)
    (tmp_path / "fast-0.jsonl").unlink()
    with shown_as(browser, tmp_path, "report") as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.scrollHeight") < 4000
        page.set_viewport_size({"width": 390, "height": 844})
        opened.go("#/episodes")
        for label in ("outcome", "reward"):
            head = page.locator(".rows thead th").filter(has_text=label).first.bounding_box()
            assert head is not None
            assert head["x"] + head["width"] <= 390


def grouped(path: Path) -> str:
    """Two groups of three completions, one of them empty; returns the id of a member of the first group."""
    with mttp.configure(f"file://{path}", run="grpo"):
        for number in range(2):
            with mttp.group(f"g{number}", size=3, task=f"t{number}") as group:
                for place, answer in enumerate(["It is four.", "It is <b>five</b>.", ""]):
                    with mttp.episode(env="maths", task=f"t{number}", group=group) as episode:
                        with episode.step() as step:
                            step.observation([{"role": "user", "content": f"What is {number} + 4?"}])
                            step.action({"role": "assistant", "content": answer})
                        episode.reward(float(place), components={"right": float(place)})
                        episode.end(terminated=True, stop_reason="stop")
                    group.add(episode)
    return mttp.read(path).episodes[0].trace_id


@pytest.mark.parametrize("width", [1280, 390])
def test_a_group_has_its_completions_beside_each_other(browser: Browser, tmp_path: Path, width: int) -> None:
    """
    The prompt once, the best first, what differs marked; by keyboard to the next group and completion.
    """
    member = grouped(tmp_path / "grpo.jsonl")
    report(tmp_path / "grpo.jsonl").write(tmp_path / "grpo.html")
    context = browser.new_context(viewport={"width": width, "height": 900})
    opened = Opened(context, (tmp_path / "grpo.html").as_uri())
    page = opened.page
    page.locator("#section-groups").get_by_role("link", name="g0").click()
    expect(page.get_by_role("heading", name="Group g0")).to_be_visible()
    expect(page.get_by_text("What is 0 + 4?")).to_have_count(1)
    cards = page.locator(".completion")
    assert ["reward 2", "reward 1", "reward 0"] == [
        card.inner_text().split(" ")[0] + " " + card.inner_text().split(" ")[1] for card in cards.all()
    ]
    expect(cards.nth(0)).to_contain_text("(empty)")
    expect(cards.nth(1)).to_contain_text("It is <b>five</b>.")

    page.keyboard.press("ArrowRight")
    expect(cards.nth(0)).to_be_focused()
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="Group g1")).to_be_visible()
    page.keyboard.press("p")
    expect(page.get_by_role("heading", name="Group g0")).to_be_visible()
    assert [] == Axe().run(page).response["violations"]

    opened.go(f"#/group/{member}")
    expect(page.locator(".completion.own")).to_contain_text("reward 0")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".completion.own").press("Enter")
    expect(page.locator(".episode")).to_be_visible()
    page.get_by_role("link", name="g0").click()
    expect(page.get_by_role("heading", name="Group g0")).to_be_visible()
    assert [] == opened.wrong
    context.close()


def test_an_episode_without_a_group_says_so(browser: Browser, tmp_path: Path) -> None:
    """
    As an error of the page.
    """
    with mttp.configure(f"file://{tmp_path}/run.jsonl"), mttp.episode(env="e") as episode:
        episode.reward(1.0)
    report(tmp_path / "run.jsonl").write(tmp_path / "run.html")
    context = browser.new_context()
    page = context.new_page()
    page.goto(
        (tmp_path / "run.html").as_uri() + f"#/group/{mttp.read(tmp_path / 'run.jsonl').episodes[0].trace_id}"
    )
    expect(page.get_by_role("alert")).to_contain_text("is in no group")
    context.close()


def test_a_long_table_shows_its_first_rows(browser: Browser, tmp_path: Path) -> None:
    """
    Sorting is of all rows; the rest is shown on request.
    """
    with mttp.configure(f"file://{tmp_path}/run.jsonl"):
        for number in range(20):
            for member in range(2):
                with mttp.episode(env="e", group=f"g{number:02}") as episode:
                    episode.reward(float(number + member))
                    episode.end(terminated=True)
    report(tmp_path / "run.jsonl").write(tmp_path / "run.html")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = Opened(context, (tmp_path / "run.html").as_uri())
    section = opened.page.locator("#section-groups")
    shown = section.locator("tbody tr")
    expect(shown).to_have_count(10)
    section.get_by_role("button", name="mean").click()
    expect(shown.first).to_contain_text("g19")
    section.get_by_role("button", name="Show all 20 rows").click()
    expect(shown).to_have_count(20)
    expect(shown.last).to_contain_text("g00")
    context.close()


def test_numbers_of_a_chart_are_a_table(opened: Opened) -> None:
    """
    For those who can't see the chart.
    """
    details = opened.page.locator("figure details").first
    details.locator("summary").click()

    expect(details.locator("tbody tr").first).to_be_visible()


def test_the_list_is_sorted_filtered_and_searched(opened: Opened) -> None:
    """
    By its heads, a form, and words; chips remove what was added.
    """
    page = opened.page
    opened.go("#/episodes")
    assert 40 == len(rows(page))

    page.get_by_role("button", name="return", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("return"))
    found = [float(one) for one in column(page, "return") if one]
    assert sorted(found, reverse=True) == found

    page.get_by_label("Column").select_option("outcome")
    page.get_by_label("Value").fill("failure")
    page.get_by_role("button", name="Add filter").click()
    expect(page.locator(".chip")).to_have_count(1)
    assert {"✗ failure"} == {*column(page, "outcome")}

    task = column(page, "task")[0]
    page.locator("#search").fill(f"{task} desk")
    page.keyboard.press("Enter")
    expect(page.locator(".chip")).to_have_count(2)
    assert {task} == {*column(page, "task")}

    for _ in range(2):
        page.locator(".chip").first.click()
    expect(page.locator("p.count")).to_have_text(re.compile("^40 episodes"))


def test_views_begin_with_both_tails(opened: Opened) -> None:
    """
    Failures with high rewards, then successes with low ones.
    """
    page = opened.page
    opened.go("#/episodes")
    names = [one.inner_text() for one in page.locator("main .views a").all()]
    page.get_by_role("link", name="High reward, failed").click()
    expect(page.locator(".chip")).to_have_count(2)  # the outcome, and that the episode ended

    assert ["All", "High reward, failed", "Low reward, succeeded"] == names[:3]
    assert {"✗ failure"} == {*column(page, "outcome")}


def test_an_episode_opens_by_click_and_back_keeps_the_list(opened: Opened) -> None:
    """
    Filters and sorting are in the address.
    """
    page = opened.page
    opened.go("#/episodes?filter=task%3Dtrain%2F5&sort=return&order=ascending")
    first = rows(page)
    page.locator("tr[data-episode]").first.click()
    expect(page.locator(".episode h1")).to_be_visible()
    assert first[0] in page.url
    page.go_back()
    expect(page.locator(".chip")).to_have_count(1)

    assert first == rows(page)


def test_the_keyboard_is_enough(opened: Opened) -> None:
    """
    From the overview to the list, a row, its episode, the next one, and back.
    """
    page = opened.page
    page.keyboard.press("e")
    expect(page.locator("tr[data-episode]").first).to_be_visible()
    listed = rows(page)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".episode h1")).to_be_visible()
    assert page.url.endswith(listed[1])
    page.keyboard.press("j")
    page.wait_for_url(f"**{listed[2]}")
    page.keyboard.press("Escape")
    expect(page.locator(".browser")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.press("Tab")
    page.locator("main").press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_an_episode_shows_chat_tools_reward_and_group(opened: Opened, ids: list[str]) -> None:
    """
    Each message once, with reasoning, arguments and answers; the group with this one marked.
    """
    page = opened.page
    opened.go(f"#/episode/{ids[8]}")
    roles = [one.inner_text().split()[0] for one in page.locator(".step > .message-of > .head h4").all()]

    assert ["system", "user", "assistant", "assistant"] == roles
    assert "calls add" == page.locator(".message-of .call h4").inner_text()
    assert ['{"a": 0}', "0"] == page.locator(".call .content > :not(h5)").all_inner_texts()
    assert ["right", "length"] == [one.inner_text() for one in page.locator(".components tbody th").all()]
    assert "expected 3" in page.locator(".scoring .why").first.inner_text()
    assert 4 == page.locator("#section-group:has-text('Group g2') tbody tr").count()
    assert "this one" in page.locator("tr[aria-current=true]").inner_text()
    expect(page.get_by_text("more characters")).to_be_visible()


def test_rewards_fit_a_phone(browser: Browser, folder: Path, ids: list[str]) -> None:
    """
    No table of a reward is wider than the screen, and none scrolls.
    """
    context = browser.new_context(viewport={"width": 390, "height": 900})
    found = Opened(context, (folder / "new.html").as_uri())
    found.go(f"#/episode/{ids[8]}")
    widths = found.page.locator(".components").evaluate_all(
        """all => all.map(one =>
            [one.scrollWidth <= one.clientWidth + 1, one.getBoundingClientRect().right <= 390])"""
    )

    assert widths
    assert all(fits for each in widths for fits in each)
    context.close()


def test_curves_of_an_episode_have_one_cursor(browser: Browser, folder: Path) -> None:
    """
    All say their values where the pointer is; a click leads to the step.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Opened(context, (folder / "poles.html").as_uri())
    found.go("#/episodes")
    found.page.locator("tr[data-episode]").first.click()
    page = found.page
    curve = page.locator(".sparkline svg").first
    curve.hover(position={"x": 239, "y": 10})
    expect(page.locator(".sparkline .range").first).to_have_text("step 39: 1")
    assert all(text.startswith("step 39: ") for text in page.locator(".sparkline .range").all_inner_texts())
    curve.click(position={"x": 239, "y": 10})
    page.wait_for_url("**step=39")
    expect(page.locator("#step-39")).to_be_focused()
    assert [] == found.wrong
    context.close()


def test_texts_are_markdown_or_as_recorded(browser: Browser, tmp_path: Path) -> None:
    """
    A box chooses; markup of HTML is text in both.
    """
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |"
    text = f"**bold** <b>no</b>\n\n{table}\n\n```\ncode\n```\n[x](javascript:alert(1))"
    with mttp.configure(f"file://{tmp_path}/run.jsonl"), mttp.episode() as episode, episode.step() as step:
        step.action({"role": "assistant", "content": text})
    report(tmp_path / "run.jsonl").write(tmp_path / "run.html")
    context = browser.new_context()
    opened = Opened(context, (tmp_path / "run.html").as_uri())
    opened.go(f"#/episode/{episode.trace_id}")
    shown = opened.page.locator(".message-of.assistant")
    expect(shown.locator("b")).to_have_text("bold")
    expect(shown.locator("td")).to_have_count(2)
    expect(shown.locator("pre.code")).to_have_text("code")
    expect(shown.locator("a")).to_have_count(0)
    opened.page.get_by_label("texts as recorded").check()
    expect(opened.page.locator(".message-of.assistant pre")).to_have_text(text)
    assert [] == opened.wrong
    context.close()


def test_tokens_are_coloured_and_read_by_keyboard(opened: Opened, ids: list[str]) -> None:
    """
    By another number after it is chosen; masked tokens and the prompt are dimmed.
    """
    page = opened.page
    opened.go(f"#/episode/{ids[0]}")
    page.locator("summary:has-text('Tokens')").first.click()
    view = page.locator(".token-view").first

    def colours() -> list[str]:
        return view.locator(".token").evaluate_all("all => all.map(one => one.style.backgroundColor)")

    expect(view.locator(".token")).to_have_count(46)
    before = colours()
    options = view.locator("option").all_inner_texts()
    view.locator("select").select_option("distance to the reference")
    after = colours()
    view.locator(".tokens").focus()
    for key in ("Home", *["ArrowRight"] * 7):
        page.keyboard.press(key)

    assert ["log probability", "entropy", "distance to the reference"] == options[:3]
    assert [""] * 6 == before[:6]
    assert before != after
    assert 6 < view.locator(".dimmed").count() < 46
    status = view.locator(".status").inner_text()
    assert status.startswith("token 7, id ")
    assert "logprobs -" in status
    assert "entropies 0." in status
    assert "⏎" in view.locator(".tokens").inner_text()


def test_two_episodes_stand_side_by_side(opened: Opened, ids: list[str]) -> None:
    """
    Picked in the list; the first difference is marked, to the token.
    """
    page = opened.page
    opened.go("#/episodes")
    for trace_id in ids[:2]:
        page.get_by_label(f"Pick episode {trace_id[:8]}").check()
    page.get_by_role("link", name="compare the two picked ones").click()
    expect(page.get_by_role("heading", name="Side by side")).to_be_visible()

    assert 2 == page.locator(".pair").count()
    assert 1 == page.locator(".pair.first").count()
    assert (
        "First difference: action, from token 0 of the completion"
        in page.locator(".first .difference").inner_text()
    )
    assert page.locator("tr.differs").count() >= 1
    opened.go(f"#/compare/{ids[0]}/{ids[0]}")
    expect(page.get_by_text("All steps are equal")).to_be_visible()


def test_steps_with_equal_answers_stand_beside_each_other(browser: Browser, tmp_path: Path) -> None:
    """
    Also after a step that only one episode has.
    """
    with mttp.configure(f"file://{tmp_path}/run.jsonl"):
        for answers in (["look", "open", "take"], ["look", "wait", "open", "take"]):
            with mttp.episode(env="rooms") as episode:
                for answer in answers:
                    with episode.step() as step:
                        step.action(answer)
    report(f"{tmp_path}/run.jsonl").write(tmp_path / "run.html")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Opened(context, (tmp_path / "run.html").as_uri())
    one, other = (episode.trace_id for episode in mttp.read(f"{tmp_path}/run.jsonl"))
    found.go(f"#/compare/{one}/{other}")
    pairs = [
        [side.inner_text() for side in pair.locator(".message-of .markdown, p.note").all()]
        for pair in found.page.locator(".pair").all()
    ]

    assert [["look", "look"], ["no such step", "wait"], ["open", "open"], ["take", "take"]] == pairs
    assert "only one episode has this step" in found.page.locator(".first .difference").inner_text()
    context.close()


def test_hostile_text_is_text(opened: Opened, ids: list[str]) -> None:
    """
    In the list, in an episode, and in what is compared: no element, no request, no control character.
    """
    page = opened.page
    for place in (f"#/episode/{ids[4]}", "#/episodes", f"#/compare/{ids[4]}/{ids[5]}", "#/overview"):
        opened.go(place)
        page.wait_for_timeout(100)
        text = page.locator("main").inner_text()

        assert "owned" != page.title()
        assert 0 == page.locator("main img").count()
        assert 0 == page.locator("main script").count()
        assert not set("\u202e\x1b\x00") & {*text}
    opened.go(f"#/episode/{ids[4]}")
    assert HOSTILE.partition("\u202e")[0] in page.locator(".message-of.user").first.inner_text()


def test_an_unknown_episode_is_an_error(opened: Opened) -> None:
    """
    In a sentence.
    """
    opened.go("#/episode/0123")

    assert "does not hold episode 0123" in opened.page.get_by_role("alert").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_nothing_keeps_people_out(
    browser: Browser, folder: Path, ids: list[str], width: int, scheme: str
) -> None:
    """
    axe finds no fault on any page.
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    found = Opened(context, (folder / "new.html").as_uri())
    axe, faults = Axe(), []
    for one in NOTICED:
        name, place = one.split(": ")
        found.go(place.format(*ids))
        for closed in found.page.locator("summary:has-text('Tokens'), summary:has-text('Numbers')").all():
            closed.click()
        found.page.wait_for_timeout(200)
        faults += [
            (name, fault["id"], [node["html"][:100] for node in fault["nodes"]][:3])
            for fault in axe.run(found.page).response["violations"]
        ]
    context.close()

    assert [] == faults


@pytest.mark.parametrize("width", [320, 768, 3840])
def test_a_page_is_as_wide_as_its_window(browser: Browser, folder: Path, ids: list[str], width: int) -> None:
    """
    Wide tables scroll by themselves.
    """
    context = browser.new_context(viewport={"width": width, "height": 900})
    for file in ("new.html", "poles.html"):
        found = Opened(context, (folder / file).as_uri())
        places = NOTICED if file == "new.html" else NOTICED[:2]
        for one in places:
            found.go(one.split(": ")[1].format(*ids))
            found.page.wait_for_timeout(100)
            wide = found.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, one
    context.close()


def test_arrays_frames_and_actions_are_shown(browser: Browser, folder: Path) -> None:
    """
    Curves of coordinates, a strip of actions, frames as pictures.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Opened(context, (folder / "poles.html").as_uri())
    found.go("#/episodes")
    found.page.locator("tr[data-episode]").first.click()
    page = found.page
    expect(page.locator(".sparkline").first).to_be_visible()

    assert 5 == page.locator(".sparkline").count()
    assert 40 == page.locator(".strip span").count()
    assert 48 == page.locator(".message-of img").evaluate("one => one.naturalWidth")
    assert [] == found.wrong
    context.close()


def test_a_printed_page_has_its_charts(browser: Browser, folder: Path, tmp_path: Path) -> None:
    """
    Also those that were not on the screen.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 300})
    found = Opened(context, (folder / "new.html").as_uri())
    found.page.pdf(path=tmp_path / "page.pdf")

    assert found.page.locator(".chart").count() == found.page.locator(".chart:has(svg)").count()
    context.close()


def test_a_live_page_follows_the_file(browser: Browser, folder: Path, tmp_path: Path) -> None:
    """
    New episodes appear, filters stay, and text that the user types is not lost.
    """
    path = tmp_path / "run.jsonl"
    record(str(path), groups=1)
    pages = LivePages([str(path)])
    pages.start()
    server = serve(pages, "127.0.0.1", 0)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Opened(context, f"http://127.0.0.1:{server.port}/")
    page = found.page
    found.go("#/episodes?filter=env%3Ddesk&sort=return&order=ascending")
    expect(page.locator("p.count")).to_have_text(re.compile("^4 episodes"), timeout=15_000)
    record(str(tmp_path / "more.jsonl"), groups=2)
    with path.open("ab") as file:
        file.write((tmp_path / "more.jsonl").read_bytes())
    expect(page.locator("p.count")).to_have_text(re.compile("^12 episodes"), timeout=15_000)
    expect(page.locator(".chip")).to_have_count(1)
    page.locator("#search").fill("typed")
    with path.open("ab") as file:
        file.write((folder / "base.jsonl").read_bytes())
    time.sleep(4)
    assert "typed" == page.locator("#search").input_value()
    page.locator("tr[data-episode]").first.click()
    expect(page.locator(".episode h1")).to_be_visible()
    found.go("#/overview")
    expect(page.get_by_role("heading", name="Over time")).to_be_visible()
    context.close()
    server.close()
    pages.close()

    assert [] == found.wrong


def test_the_report_is_the_front_end_that_is_in_the_package(folder: Path) -> None:
    """
    One script with the data, one with the code, and a policy that names the latter and forbids all else.
    """
    text = (folder / "new.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="mttp-report">(.*?)</script>', text, re.DOTALL)
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)

    assert 40 == len(json.loads(data)["rows"])
    assert 2 == text.count("</script>")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert not re.search(r"https?://(?!www\.w3\.org/)", text.replace(data, "").partition("<script")[0])


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_episodes_are_labelled_by_keys(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    """
    A queue, scores, a note, the best of a group, and an undo; hostile notes are text.
    """
    runs = tmp_path / "runs"
    record(f"{runs}/run.jsonl", groups=3)
    pages = LivePages([str(runs)], keep_annotations=True)
    pages.start()
    labels = Labeling(pages, LateFactsFile(runs).add, by="ada", seed=2)
    server = serve(pages, "127.0.0.1", 0, labels=labels)
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    found = Opened(context, f"http://127.0.0.1:{server.port}/")
    page, status, patience = found.page, found.page.locator(".labels [role=status]"), 1000 * SECONDS
    eventually(lambda: pages.is_read)
    expect(page.locator(".labels")).to_be_hidden()

    page.keyboard.press("q")
    expect(status).to_contain_text("no score", timeout=patience)
    page.keyboard.press("4")
    expect(status).to_contain_text("score 0.75", timeout=patience)
    page.keyboard.press("2")
    expect(status).to_contain_text("score 0.25", timeout=patience)
    page.keyboard.press("u")
    expect(status).to_contain_text("Undone", timeout=patience)
    expect(status).to_contain_text("score 0.75", timeout=patience)
    page.keyboard.press("c")
    page.keyboard.insert_text(f"q1 {HOSTILE}")
    page.keyboard.press("Control+Enter")
    expect(status).to_contain_text("note “q1 </script>", timeout=patience)
    page.keyboard.press("c")
    page.keyboard.press("Escape")
    expect(page.locator(".labels textarea")).to_be_hidden()

    member = page.url.rpartition("/")[2]
    found.go(f"#/group/{member}")
    page.locator("article.completion").nth(1).focus()
    page.keyboard.press("b")
    expect(status).to_contain_text("best of its group", timeout=patience)
    found.go(f"#/episode/{member}")
    expect(page.get_by_text(re.compile("^comment q1|^comment: q1|q1 </script>")).first).to_be_visible(
        timeout=patience
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [] == Axe().run(page).response["violations"]

    found.go("#/labels")
    expect(page.get_by_role("heading", name="Scores of people")).to_be_visible(timeout=patience)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [] == Axe().run(page).response["violations"]
    assert "owned" != page.title()
    context.close()
    server.close()
    pages.close()

    annotations = mttp.read(str(runs)).annotations
    assert ["score", "score", "score", "comment", "preference"] == [one.kind for one in annotations]
    assert {"ada"} == {one.by for one in annotations}
    assert [] == found.wrong
