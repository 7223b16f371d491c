"""The page: what it holds, and what it does in a real browser (chromium, driven by Playwright)."""

import json
import re
import shutil
import time

import pytest

import rushlight as rl
from rushlight import machine, observation
from rushlight.report import page, path
from rushlight.report.records import read_calls

NASTY = "</script><script>window.hurt = 1</script><!-- & 'x'"


class Small(rl.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = rl.nn.Linear(8, 16)
        self.last = rl.nn.Linear(16, 4)

    def forward(self, x):
        h = rl.nn.functional.gelu(self.first(x)) * 2
        return self.last(h).softmax(-1)


def program(model, compiled):
    note = "</script><script>window.hurt = 1</script><!-- & 'x'"  # of the source that is shown
    for rows in (4, 4, 6):
        compiled(rl.randn(rows, 8)).sum().backward()
    return note, [rl.relu(p) for p in model.parameters()]


@pytest.fixture(scope="module")
def explained():
    model = Small()
    return rl.explain(program)(model, rl.compile(model))


@pytest.fixture(scope="module")
def content(explained):
    return explained.page()


def data_of(content):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', content, re.S)
    return json.loads(found[1])


def test_the_page_stands_alone(content):
    assert not re.search(r'(src|href)="(https?:)?//', content.split('id="data"')[0])
    assert "@@" not in re.sub(r"<script.*?</script>", "", content, flags=re.S)
    assert len(content) < 2_000_000


def test_text_of_the_program_does_no_harm(content):
    data = data_of(content)
    (mine,) = [f for f in data["files"] if f["name"] == "test_page.py"]
    assert NASTY in mine["text"]
    assert content.count(NASTY) == 0


def test_generated_code_and_machine_code_have_kernels(content):
    graphs = [g for c in data_of(content)["observed"]["captures"] for g in c["graphs"]]
    forward = next(g for g in graphs if g["symbols"])
    languages = {a["language"] for a in forward["artifacts"]}
    assert {"graph", "loops", "cpp", "python"} <= languages
    if shutil.which("objdump"):
        asm = next(a for a in forward["artifacts"] if a["language"] == "asm")
        assert {name for _, _, name in asm["spans"]} <= set(forward["symbols"]) and asm["spans"]
    cpp = next(a for a in forward["artifacts"] if a["language"] == "cpp")
    lines = cpp["text"].splitlines()
    mine = [int(n) for n, chain in cpp["origins"].items() if chain[0].startswith("test_page.py")]
    linked = [lines[n - 1] for n in mine]
    assert any("rl_erf" in line for line in linked)


def test_the_page_of_the_documented_paths_alone():
    made = page.html(page.data() | observation.page_vocabulary())
    data = data_of(made)
    assert data["observed"] is None
    counts = {}
    for s in data["selections"]:
        counts[s["mode"], s["device"]] = (len(s["stages"]), len(s["steps"]))
    assert counts == {("eager", "cpu"): (5, 4), ("eager", "gpu"): (5, 4),
                      ("compile", "cpu"): (8, 8), ("compile", "gpu"): (12, 12)}  # fmt: skip
    assert data["documented"] == dict(path.load().facts)


# ---- in a browser


@pytest.fixture(scope="module")
def browser():
    drive = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium shows the page")
    with drive.sync_playwright() as runner:
        chromium = runner.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser, tmp_path):
    pages = []

    def opened(content, width=1280):
        file = tmp_path / "path.html"
        file.write_text(content, encoding="utf-8")
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.errors = []
        tab.on("pageerror", lambda e: tab.errors.append(str(e)))
        tab.on("request", lambda r: None if r.url.startswith("file:") else tab.errors.append(r.url))
        tab.goto(file.as_uri())
        tab.wait_for_selector("body[data-ready]")
        pages.append(tab)
        return tab

    yield opened
    for tab in pages:
        assert tab.errors == []
        tab.close()


@pytest.mark.slow
def test_selectors_change_the_path(show):
    tab = show(page.html(page.data() | observation.page_vocabulary()))
    first = "Showing torch.compile on an NVIDIA GPU: 12 stages, 12 steps"
    assert tab.inner_text("#status") == first
    for mode, device, text, n in (
        ("eager", "gpu", "eager mode on an NVIDIA GPU: 5 stages, 4", 4),
        ("eager", "cpu", "eager mode on a CPU: 5 stages, 4", 4),
        ("compile", "cpu", "torch.compile on a CPU: 8 stages, 8", 8),
    ):
        tab.check(f'input[name=mode][value="{mode}"]')
        tab.check(f'input[name=device][value="{device}"]')
        assert text in tab.inner_text("#status")
        assert tab.locator("#steps li").count() == n


@pytest.mark.slow
def test_lines_light_up_in_both_views_and_both_ways(show, content):
    tab = show(content)
    assert tab.evaluate("window.hurt") is None
    line = Small.forward.__code__.co_firstlineno + 1
    row = tab.locator("#left .line").nth(line - 1)
    row.scroll_into_view_if_needed()
    row.click()
    lit = tab.locator("#right .line.pin").all_inner_texts()
    assert any("gelu" in text for text in lit) and not any("softmax" in text for text in lit)
    tab.locator("#also button", has_text="C++").first.click()
    assert any("rl_erf" in t for t in tab.locator("#right .line.pin").all_inner_texts())
    tab.locator("#right .line.pin", has_text="rl_erf").first.click()
    pinned = tab.locator("#left .line.pin").all_inner_texts()
    assert len(pinned) == 1 and "gelu(self.first" in pinned[0]


@pytest.mark.slow
@pytest.mark.parametrize("width", [600, 1280])  # the buttons wrap, and do not
def test_the_panes_stay_under_a_still_pointer(show, content, width):
    tab = show(content, width)
    tab.evaluate("""() => { window.drawn = 0;
        document.addEventListener("mousemove", e => {
            window.at = {screenX: e.screenX, screenY: e.screenY, bubbles: true} });
        new MutationObserver(() => window.drawn++).observe(
            document.getElementById("also"), {childList: true}) }""")
    tab.evaluate("document.getElementById('views').scrollIntoView()")
    place = "document.getElementById('left').getBoundingClientRect().top + window.scrollY"
    top = tab.evaluate(place)
    first = Small.forward.__code__.co_firstlineno
    for line in (first + 1, first + 2, program.__code__.co_firstlineno + 3):
        row = tab.locator("#left .line").nth(line - 1)
        row.hover(timeout=3000)
        drawn = tab.evaluate("window.drawn")
        tab.wait_for_timeout(150)
        other = tab.locator("#left .line").nth(line)  # came to lie there, was not pointed at
        other.evaluate("row => row.dispatchEvent(new MouseEvent('mousemove', window.at))")
        assert tab.evaluate("window.drawn") == drawn > 0
        assert tab.evaluate(place) == top
        row.click(timeout=3000)
        assert tab.locator("#left .line.pin").first.get_attribute("data-i") == str(line - 1)
        assert tab.evaluate(place) == top
        assert tab.locator("#right .line.pin").count() > 0  # a text that has it is shown
        tab.keyboard.press("Escape")
        assert tab.locator(".line.pin").count() == 0


@pytest.mark.slow
def test_a_kernel_lights_its_own_lines_on_both_sides(show, content):
    graphs = [g for c in data_of(content)["observed"]["captures"] for g in c["graphs"]]
    row = next(r for r in data_of(content)["observed"]["costs"] if r["how"] == "generated")
    graph = next(g for g in graphs if g["label"] == row["parts"][0]["graph"])
    step = next(s for s in graph["steps"] if s["name"] == row["name"])
    code = next(a for a in graph["artifacts"] if a["language"] == "cpp")
    spans = [(a, b) for a, b, name in code["spans"] if name == step["name"]]
    own = [i for a, b in spans for i in range(a - 1, b)]
    tab = show(content)
    graph_button = tab.get_by_title(graph["label"], exact=True)
    row = tab.locator("#kernels tr", has_text=step["name"]).filter(has=graph_button).first
    row.scroll_into_view_if_needed()
    button = row.get_by_role("button", name=step["name"])
    button.click()
    tab.wait_for_timeout(200)  # the page has moved, the pointer has not
    lit = tab.locator("#right .line.pin").evaluate_all("rows => rows.map(r => +r.dataset.i)")
    assert lit == own
    mine = tab.locator("#left .line.pin").evaluate_all("rows => rows.map(r => +r.dataset.i + 1)")
    assert {f"test_page.py:{n}" for n in mine} == set(step["lines"])
    assert tab.locator("#right .line.pin").first.is_visible()


@pytest.mark.slow
def test_search_folding_and_keys(show, content):
    tab = show(content)
    tab.keyboard.press("/")
    tab.keyboard.type("softmax")
    tab.wait_for_selector("#found li button:visible")
    assert "softmax" in tab.inner_text("#found")
    tab.keyboard.press("Escape")
    assert tab.locator("#found").is_hidden()
    tab.evaluate("document.getElementById('model').scrollIntoView()")
    tab.keyboard.press("/")
    tab.keyboard.type("recompiles")  # a heading, found from far down the page
    tab.wait_for_selector("#found li button:visible")
    found = tab.locator("#found").bounding_box()
    assert 0 <= found["y"] < 450 and "Recompiles" in tab.inner_text("#found")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert tab.locator("#found").is_hidden()
    assert tab.locator("h3.flash").inner_text() == "Recompiles"
    line = Small.forward.__code__.co_firstlineno + 1
    for words, text in ((f"line {line}", "gelu(self.first"), ("machine code", "machine code"),
                        ("memory", "memory: ")):  # fmt: skip
        if "machine" in words and not shutil.which("objdump"):
            continue
        tab.keyboard.press("/")
        tab.fill("#search", words)
        tab.locator("#found", has_text=text).wait_for()
        tab.keyboard.press("Escape")
    tab.keyboard.press("/")
    tab.fill("#search", f"line {line}")
    tab.keyboard.press("Enter")
    assert tab.locator("#left .line.pin").count() == 1
    tab.keyboard.press("Escape")  # the focus went to the line: one takes it back
    assert tab.locator(".line.pin").count() == 0
    stage = tab.locator("#stage-inductor")
    stage.locator("summary").click()
    assert "fusion" in stage.inner_text() and "documented" in stage.inner_text().lower()
    tab.locator("#right .code").focus()
    for _ in range(4):
        tab.keyboard.press("ArrowDown")
    assert tab.locator("#right .line.found").count() == 1


@pytest.mark.slow
def test_a_path_that_the_run_did_not_take_is_documented_beside_the_run(show, content):
    tab = show(content)
    short = tab.inner_text("#short")
    assert "of this run: torch.compile on a CPU" in short
    tab.check('#path input[name=device][value="gpu"]')
    assert "documented, not observed" in tab.inner_text("#status")
    assert tab.inner_text("#short") == short
    assert tab.locator("#stagelist .observed").count() == 0
    boxes = tab.locator("#diagram .box.off text").evaluate_all(
        "texts => texts.map(t => [getComputedStyle(t).fill, getComputedStyle(t).opacity])"
    )
    dim = tab.evaluate("getComputedStyle(document.querySelector('.dim')).color")
    assert boxes and all(box == [dim, "1"] for box in boxes)
    assert tab.locator("#diagram svg").bounding_box()["height"] < 720


@pytest.mark.slow
def test_a_reload_keeps_what_was_chosen(show, content):
    tab = show(content)
    tab.check('#path input[name=mode][value="eager"]')
    line = Small.forward.__code__.co_firstlineno
    tab.locator("#left .line").nth(line).click()
    right = tab.locator("#right select").input_value()
    tab.locator("#nav a", has_text="Time").click()
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    assert tab.is_checked('#path input[name=mode][value="eager"]')
    assert tab.locator("#left .line.pin").get_attribute("data-i") == str(line)
    assert tab.locator("#right select").input_value() == right
    assert 0 <= tab.locator("#time h2").bounding_box()["y"] < 200
    tab.locator("#nav a", has_text="Time").focus()  # Escape lets go wherever the focus is
    tab.keyboard.press("Escape")
    assert tab.locator(".line.pin").count() == 0 and "line=" not in tab.url


@pytest.mark.slow
def test_source_lines_say_all_that_became_of_them(show, content):
    tab = show(content)
    marks = tab.locator("#left .line .marks")
    line = Small.forward.__code__.co_firstlineno
    assert marks.nth(line).inner_text() == "c" and marks.nth(line + 1).inner_text() == "c"
    assert marks.nth(program.__code__.co_firstlineno + 2).inner_text() == "re"
    assert "compiled" in marks.nth(line).get_attribute("title")


@pytest.mark.slow
def test_the_timeline_tells_what_an_event_was_and_goes_to_it(show, content):
    tab = show(content)
    box = tab.locator("#timeline canvas")
    box.scroll_into_view_if_needed()
    legend = tab.locator("#timeline .legend").all_inner_texts()
    assert {"Python itself", "capturing and compiling", "graph", "kernel"} <= set(legend)
    data = data_of(content)["timeline"]
    first = next(e for e in data["events"] if e[3] == "compiled")
    end, place = max(e[1] for e in data["events"]), box.bounding_box()
    x = (first[0] + first[1]) / 2 / end * place["width"]
    tab.mouse.move(place["x"] + x, place["y"] + 8 + 24 * first[2] + 10)
    told = tab.inner_text("#tip")
    line = f"test_page.py:{program.__code__.co_firstlineno + 3}"
    assert "captured and compiled in this call" in told and line in told
    tab.mouse.down()
    tab.mouse.up()
    kept = tab.locator("#left .line.pin").all_inner_texts()
    assert len(kept) == 1 and "compiled(rl.randn" in kept[0]
    box.focus()
    before = tab.locator("#timeline p").last.inner_text()
    box.scroll_into_view_if_needed()
    place = box.bounding_box()
    tab.mouse.move(place["x"] + 300, place["y"] + 20)
    tab.mouse.wheel(0, -300)
    tab.wait_for_function("t => document.querySelector('#timeline > p:last-child').innerText !== t",
                          arg=before)  # fmt: skip


@pytest.mark.slow
def test_the_timeline_is_that_of_the_whole_run(content):
    data = data_of(content)
    told = data["timeline"]
    assert told["wall"] == data["observed"]["wall_ns"] == max(e[1] for e in told["events"])
    assert told["events"][0][:4] == [0, told["wall"], 0, "script"]
    backward = [e for e in told["events"] if told["names"][e[4]].endswith(" backward")]
    assert {e[3] for e in backward} == {"compile"} and len(backward) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump reads machine code")
def test_every_kernel_and_routine_has_its_machine_code(show, content):
    tab = show(content)
    rows = tab.locator("#kernels tbody tr")
    assert rows.count() > 3
    for i in range(rows.count()):
        assert "machine code" in rows.nth(i).inner_text(), rows.nth(i).inner_text()
    rows.filter(has_text="library routine").first.get_by_text("machine code").click()
    told = tab.inner_text("#right .code")  # another test may have had the same products generated
    assert "mov" in told and tab.locator("#right .line.pin").count() > 9 or "there before" in told


@pytest.mark.slow
def test_modules_open_and_close(show, content):
    tab = show(content)
    tab.get_by_role("button", name="close all").click()
    closed = tab.locator("#modelbody .node.module")
    assert closed.count() == 2 and "144 parameters" in closed.first.text_content()
    closed.first.click()
    assert tab.locator("#modelbody .node.module").count() == 1
    frame = tab.locator("#modelbody .frame")
    assert frame.count() == 1 and frame.text_content().startswith("first")
    tab.keyboard.press("Enter")  # the frame has the focus: by keyboard alone
    assert tab.locator("#modelbody .node.module").count() == 2 and frame.count() == 0
    tab.keyboard.press("Enter")
    tab.locator("#modelbody .node[aria-label=gelu]").click()
    told = tab.inner_text("#modelbody .about")
    line = Small.forward.__code__.co_firstlineno + 1
    assert f"test_page.py:{line}" in told and "gelu(self.first(x))" in told


@pytest.mark.slow
def test_the_answers_stand_first_and_lead_to_lines_and_code(show, content):
    tab = show(content)
    titles = tab.locator("#shortbody dt").all_inner_texts()
    rows = dict(zip(titles, tab.locator("#shortbody dd").all()))
    assert {"Compiled lines", "Compiled again", "Longest kernel", "Time"} <= rows.keys()
    assert all(row.bounding_box()["y"] < 900 for row in rows.values())
    assert "x.shape[0] was 4, now 6" in rows["Compiled again"].inner_text()
    first = Small.forward.__code__.co_firstlineno + 1
    rows["Compiled lines"].locator("button", has_text=f":{first}-{first + 1}").click()
    kept = tab.locator("#left .line.pin").all_inner_texts()  # every line of the range
    assert len(kept) == 2 and "gelu(self.first" in kept[0] and "softmax" in kept[1]
    assert "compiled" in tab.locator("#left .line").nth(first).get_attribute("class")
    last = program.__code__.co_firstlineno + 3
    assert "eager" in tab.locator("#left .line").nth(last).get_attribute("class")
    kernel = tab.locator("#timebody tr", has_text="generated").first
    if shutil.which("objdump"):
        kernel.get_by_role("button", name="machine code").click()
        assert "machine code" in tab.locator("#right select option:checked").inner_text()


@pytest.mark.slow
def test_a_kernel_of_the_gpu_alone_is_linked_and_results_of_several_are_told_apart(show, content):
    tab = show(content)
    found = tab.evaluate(
        """() => { const keys = {}, text = "a\\nb", title = "fused_gelu_4_0, for sm_90";
        const source = {stage: "triton_kernels", title, text, spans: [],
            origins: {1: ["m.py:3", "gelu ops/pointwise.py:1"], 2: ["gelu ops/pointwise.py:1"]}};
        const made = ofGpuOnly({stage: "ptx", title, text, spans: []}, {artifacts: [source]}, keys);
        const graph = {artifacts: [{language: "graph", text:
            "    norm: tuple[f32[2, 4], f32[2, 1]] = ops.norm(x)\\n    y: f32[2] = ops.y(norm)"}]};
        return [made.spans, keys, madeBy(graph).layouts]; }"""
    )
    assert found[0] == [[1, 2, "fused_gelu_4_0"]] and found[1] == {"fused_gelu_4_0": ["L|m.py:3"]}
    assert found[2] == {"norm": ["f32[2, 4]", "f32[2, 1]"], "y": ["f32[2]"]}


@pytest.mark.slow
def test_a_call_takes_what_its_pieces_take_too(show, content):
    tab = show(content)
    told = tab.evaluate(
        """() => { const before = run.functions, f = (name, calls, misses, hit_ns) =>
            ({function: name, calls, misses, hit_ns});
        run.functions = [f("f", 4, 2, 200), f("f, after the break at line 3", 8, 2, 60),
            f("g", 3, 1, 50), f("h", 1, 1, 0), f("k", 2, 1, 9),
            f("k, after the break at line 9", 1, 1, 0)];
        const made = [callTimes(), withPieces().map(x => x.function)];
        run.functions = before; return made; }"""
    )
    told, order = told
    assert [name[0] for name in order] == list("ffghkk") and order[1].endswith("line 3")
    assert [re.search(r"call of (\w+) takes (.*? ns)", t).groups() for t in told] == [
        ("f", "120 ns"), ("g", "25 ns"), ("k", "at least 9 ns")
    ]  # fmt: skip


@pytest.mark.slow
def test_places_are_ordered_and_none_is_left_out_silently(show, content):
    tab = show(content)
    given = [f"lib.py:{n}" for n in range(1, 80, 2)] + ["test_page.py:20", "test_page.py:21"]
    places = tab.evaluate("list => ranges(list).map(b => b.textContent || b)", given)
    assert places[0] == "test_page.py:20-21" and len(places) == 41
    said = tab.evaluate("list => h('p', {}, some(ranges(list), 5)).textContent", given)
    assert said.endswith("and 36 more") and "lib.py:7" in said and "lib.py:9" not in said
    groups = tab.evaluate(
        """() => grouped(["x.shape[0] was 3, now 4", "flag was 3, now 4",
        "h.shape[0] was 3, now 4 (another capture did not fit either: ...)"]
        .map(why => ({why}))).map(([r, others]) => [r.why, others.length])"""
    )
    assert groups == [["x.shape[0] was 3, now 4", 1], ["flag was 3, now 4", 0]]


@pytest.mark.slow
def test_kernels_of_a_pass_memory_and_saved_values_are_a_click_away(show, content):
    captures = data_of(content)["observed"]["captures"]
    graphs = [g for c in captures for g in c["graphs"]]
    tab = show(content)
    rows = dict(
        zip(tab.locator("#shortbody dt").all_inner_texts(), tab.locator("#shortbody dd").all())
    )
    rows["Forward, backward"].get_by_role("button", name="backward").click()
    if tab.locator("#kernels button.rest").count():
        tab.locator("#kernels button.rest").click()
    table = tab.locator("#kernels tbody tr")
    labels = {g["label"] for g in graphs if g["name"].endswith("backward")}
    costs = data_of(content)["observed"]["costs"]
    parts = [p for k in costs for p in k["parts"] if p["graph"] in labels]
    assert table.count() == len(parts) > 0
    assert all("backward" in text for text in table.all_inner_texts())
    most = max(g["peak_bytes"] for g in graphs)
    told = rows["Memory"].inner_text()
    assert f"{most} bytes" in told or f"{most / 1000:.2f} kB" in told, told
    rows["Memory"].get_by_role("link").click()
    assert "memory" in tab.url
    saved = tab.locator("#timebody details").first
    saved.locator("summary").click()
    partition = next(a for a in captures[0]["artifacts"] if a["title"] == "partition")
    wanted = [row for row in partition["text"].splitlines() if row.startswith("saved")]
    assert saved.locator("tbody tr").count() == len(wanted) > 0


@pytest.mark.slow
def test_tables_sort_and_are_one_tab_stop(show, content):
    tab = show(content)
    table = tab.locator("#kernels table")
    names = table.locator("tbody tr td:first-child").all_inner_texts()
    table.get_by_role("button", name="what").click()
    sorted_ = table.locator("tbody tr td:first-child").all_inner_texts()
    assert sorted_ != names and sorted(sorted_) == sorted(names)
    assert table.locator('th[aria-sort="ascending"]').inner_text() == "what"
    assert table.locator("tbody button").count() > 3
    assert table.locator('tbody button[tabindex="0"]').count() == 1
    table.locator('tbody button[tabindex="0"]').focus()
    tab.keyboard.press("ArrowDown")
    assert table.locator("tbody tr").nth(1).locator("button:focus").count() == 1
    stages = tab.locator("#timebody table").first
    assert "%" in stages.inner_text() and "C++ compiler" in stages.inner_text()


@pytest.mark.slow
def test_a_long_error_and_long_lines_keep_the_page_narrow(show):
    def failing(x):
        raise ValueError("<b>" + "y" * 5000)

    with pytest.raises(ValueError) as caught:
        rl.explain(failing)(rl.ones(2))
    tab = show(caught.value.explanation.page())
    assert "<b>yyy" in tab.inner_text("#error")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 1920])
def test_nothing_is_wider_than_the_window(show, content, width):
    tab = show(content, width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_each_launch_says_the_call_of_compiled_code_that_made_it():
    x = ("float32[4]",)

    def row(id, parent, depth, name, kind, ran=""):
        return (id, parent, depth, name, kind, True, 10 * id, 10 * id + 5, x, x, ran, "")

    made = [
        row(2, 1, 1, "f#1/g#2", "graph"), row(3, 2, 2, "fused_add_0", "fused"),
        row(1, None, 0, "f", "compiled"), row(4, None, 0, "add", "scalar", "add.float32.TT"),
        row(6, 5, 1, "f#1/g#2", "graph"), row(7, 6, 2, "mm", "library", "cublasLt matmul"),
        row(5, None, 0, "f", "compiled"), row(8, 5, 1, "item", "read"),
    ]  # fmt: skip
    rows, left_out = page.launches(read_calls(made))
    assert left_out == 0
    assert [(r["name"], r["call"]) for r in rows] == [
        ("fused_add_0", "f, call 1"), ("add.float32.TT", ""), ("cublasLt matmul", "f, call 2"),
        ("item", "f, call 2"),
    ]  # fmt: skip


@pytest.mark.slow
def test_what_ran_on_the_cpu_is_not_measured_by_a_gpu_and_a_library_s_lines_are_called_somewhere(
    show, content
):
    tab = show(content)
    told = tab.evaluate(
        """() => { const k = run.costs[0], at = new Map([...document.querySelectorAll(
            "#shortbody dt")].map(t => [t.textContent, t.nextSibling.textContent]));
        const before = kernelSums().ns;
        run.costs.push({...k, name: "host", host: true, ns: 1e12});
        for (const g of run.captures.flatMap(c => c.graphs)) for (const s of g.steps) s.lines = [];
        drawShort();
        const now = new Map([...document.querySelectorAll("#shortbody dt")].map(
            t => [t.textContent, t.nextSibling.textContent]));
        const last = kernelRows().at(-1);
        return [before === kernelSums().ns, last.name, limitShare(last),
            at.get("Longest kernel") === now.get("Longest kernel"), now.get("Compiled lines")]; }"""
    )
    assert told[0] and told[1] == "host" and told[2] == "" and told[3]
    assert told[4].startswith("none of your own, but what is called at ")
    assert "test_page.py" in told[4] and not tab.errors


@pytest.mark.slow
def test_one_call_is_drawn_on_host_and_device(show, content):
    tab = show(content)
    tab.evaluate(
        """() => { const where = "test_page.py:20", place = "cuda:0, 7";
        const e = (name, call, at, ns, kind) =>
            ({kind: kind || "launches", name, call, at, ns, where});
        data.device_events = [e("a", "f, call 1", 0, 10), e("b", "f, call 2", 100, 10),
            e("c", "f, call 2", 120, 10), e("item", "f, call 2", 140, 60, "reads")];
        const w = (name, at, ns, queued) => ({name, from: name, where: "", at, ns, queued, place});
        data.device_work = [w("a_0", 9, 5, 4), w("b_0", 115, 30, 8),
            w("copy device to host", 190, 4, 40)];
        drawSequence(); $("sequence").hidden = false; }"""
    )
    box = tab.locator("#sequencebody")
    assert box.locator("select").input_value() == "f, call 2"
    assert [box.locator(f"rect.{k}").count() for k in ("launch", "waits", "kernel", "copy")] == [
        2, 1, 1, 1
    ]  # fmt: skip
    assert "100 ns from the first launch" in box.inner_text() and "waited 60 ns" in box.inner_text()
    box.locator("select").select_option("f, call 1")
    assert box.locator("rect.seq").count() == 2
    assert "14 ns from the first launch" in box.inner_text()
    box.locator("rect.launch").click()
    assert tab.locator("#left .line.pin").get_attribute("data-i") == "19"


TORCH_GRAPH = '''class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[2, 8][8, 1]cpu", G_m_modules_up_modules_a_parameters_weight_: "f32[8, 8][8, 1]cpu", G_m_modules_up_modules_b_parameters_weight_: "f32[8, 8][8, 1]cpu"):
        l_x_ = L_x_
        g_m_modules_up_modules_a_parameters_weight_ = G_m_modules_up_modules_a_parameters_weight_
        # File: m.py:3 in forward, code: a
        linear: "f32[2, 8][8, 1]cpu" = torch._C._nn.linear(l_x_, g_m_modules_up_modules_a_parameters_weight_, None);  l_x_ = None
        view: "f32[8, 2][2, 1]cpu" = linear.view(8, 2);  linear = None
        neg: "f32[8, 2][2, 1]cpu" = -view;  view = None
        getitem: "f32[2][1]cpu" = neg[(0, slice(None, None, None))]
        linear_1: "f32[2, 8][8, 1]cpu" = torch._C._nn.linear(getitem, G_m_modules_up_modules_b_parameters_weight_, None)
        add: "f32[2, 8][8, 1]cpu" = linear_1 + 1.5;  linear_1 = None
        return (add,)
'''  # noqa: E501  (as torch writes it)


@pytest.mark.slow
def test_a_graph_of_torch_has_its_edges_and_modules(show, content):
    tab = show(content)
    found = tab.evaluate(
        """text => { run.vendor = "PyTorch"; const lines = text.split("\\n");
        const g = parseGraph({lines, keys: lines.map(() => []), origins: {}}, {modules: {}});
        run.vendor = "Rushlight";
        const told = n => [n.id, n.op, n.module, n.layout];
        return {edges: g.edges, nodes: [...g.nodes.values()].map(told)}; }""",
        TORCH_GRAPH,
    )
    a, b = (f"G_m_modules_up_modules_{x}_parameters_weight_" for x in "ab")
    edges = {tuple(edge) for edge in found["edges"]}
    assert edges == {("L_x_", "linear"), (a, "linear"), ("linear", "view"), ("view", "neg"),
                     ("neg", "getitem"), ("getitem", "linear_1"), (b, "linear_1"),
                     ("linear_1", "add")}  # fmt: skip
    nodes = {row[0]: row[1:] for row in found["nodes"]}
    assert nodes["linear"][1] == "up.a" and nodes["linear_1"][1] == "up.b"
    assert [nodes[n][:2] for n in ("view", "neg", "getitem")] == [
        ["view", "up"], ["neg", "up"], ["getitem", "up"]
    ]  # fmt: skip
    assert nodes["add"] == ["add", "", "f32[2, 8]"]


@pytest.mark.slow
def test_calls_that_waited_for_a_processor_are_told_beside_their_share(show, content):
    tab = show(content)
    told = tab.evaluate(
        """() => { const k = run.costs[0], limit = {bytes_per_ns: 10, operations_per_ns: 500};
        data.limits = {...limit, measured: "", kept: ""};
        const text = fastest_ns => { for (const p of k.parts) p.fastest_ns = 0;
            Object.assign(k.parts[0], {fastest_ns});
            Object.assign(k, {calls: 8, ns: 1e5, fastest_ns, moved_bytes: 1e4, operations: 0});
            drawShort();
            return [...document.querySelectorAll("#shortbody .busy")].map(e => e.textContent); };
        run.facts.processors = {ran_ns: 99, waited_ns: 1};
        const quiet = [text(0), text(9e4), text(1e4)];
        run.facts.processors = {ran_ns: 25, waited_ns: 75};
        drawTime();
        return [...quiet, text(0), document.querySelector("#kernels > .dim").textContent]; }"""
    )
    assert told[0] == told[1] == []
    assert told[2][0] == " its fastest calls: 10 %" and "10.0 times as long" in told[2][1]
    assert told[3] == ["The machine was busy: the program's threads got 25 % of the processors' "
                       "time that they asked for. "]  # fmt: skip
    assert "got 25 %" in told[4]


def test_what_the_threads_got_of_the_processors_is_kept():
    def program():  # longer than the system takes to bring its counts up to date
        begun = time.process_time()
        while time.process_time() < begun + 0.05:
            pass

    facts = rl.explain(program)().observed.facts
    if any(machine.processor_time()):
        assert facts["processors"]["ran_ns"] > 0 <= facts["processors"]["waited_ns"]


@pytest.mark.slow
def test_a_graph_s_button_lets_go_of_what_was_lit(show, content):
    tab = show(content)
    line = Small.forward.__code__.co_firstlineno + 1
    tab.evaluate("line => showLines(panes.left, line, line)", line - 1)
    assert tab.locator("#left .line.pin").count() == 1 and tab.inner_text("#also")
    tab.locator("#shortbody button", has_text=re.compile(r"^#\d+$")).first.click()
    assert tab.locator(".line.pin").count() == 0 and not tab.inner_text("#also").strip()
    assert "Graph " in tab.inner_text("#right .group")


def halves(x):
    y = (x + 1).relu()
    print(end="")
    y = y * 2
    if y.sum() > 0:
        y = y - 1
    return y.sum()


@pytest.fixture(scope="module")
def broken():
    return rl.explain(rl.compile(halves))(rl.ones(4)).page()


@pytest.mark.slow
def test_the_bytecode_of_a_break_is_that_of_the_capture_that_it_ended(show, broken):
    first = halves.__code__.co_firstlineno
    captures = data_of(broken)["observed"]["captures"]
    (ended,) = [c for c in captures for b in c["breaks"] if f":{first + 4} " in b["where"] + " "]
    assert ended is not captures[0]
    tab = show(broken)
    for show_bytecode_first in (False, True):
        if show_bytecode_first:
            tab.evaluate("""() => { release();
                show("right", artifacts.find(a => a.language === "bytecode")); }""")
        tab.locator("#shortbody button.place", has_text=f":{first + 4}").first.click()
    assert f"Capture {ended['unit']}" == tab.inner_text("#right .group")


TWO_NORMS = '''def forward(self, args_0: "f32[2, 8]", self__modules__up____modules__a____buffers__mean: "f32[8]", self__modules__up____modules__b____buffers__mean: "f32[8]"):
    rows = _norm(args_0, self__modules__up____modules__a____buffers__mean)
    rows_1: "f32[2, 8].strides(1, 2)" = _getitem(rows, 0)
    rows_2 = _norm(rows_1, self__modules__up____modules__b____buffers__mean)
    rows_3: "f32[2, 8]" = _getitem(rows_2, 0)
    return (rows_3,)
'''  # noqa: E501  (as a graph is written)


@pytest.mark.slow
def test_results_and_buffers_stand_in_the_module_that_they_are_of(show, content):
    tab = show(content)
    found = tab.evaluate(
        """text => { const of = x => [`self._modules['up']._modules['${x}']`, "Norm"];
        const parse = (text, modules) => { const lines = text.split("\\n");
            return [...parseGraph({lines, keys: lines.map(() => [])}, {modules}).nodes.values()]
                .map(n => [n.id.slice(-7), n.op, n.module]); };
        const again = text.replaceAll("_norm(", "ops.norm(").replaceAll("_getitem(rows_2, 0)",
            "ops.relu(rows_2[0])").replaceAll("rows_2", "rows_1")
            .replaceAll("rows_1 = ops.norm(rows_1",
            "rows_1 = ops.norm(rows[0]")
            .replace(/.*_getitem.*\\n/, "");
        return [parse(text, {rows: of("a"), rows_2: of("b")}), parse(again, {rows: of("a")})]; }""",
        TWO_NORMS,
    )
    captured, functional = ({n[0]: n[1:] for n in nodes} for nodes in found)
    assert captured["rows_1"] == ["getitem", "up.a"] and captured["rows_3"] == ["getitem", "up.b"]
    assert functional["rows"][1] == "up.a" and functional["rows_1"] == ["norm", "up.b"]
    assert found[0][0] == ["args_0", "args_0", ""]
    assert found[0][1][1:] == ["mean", "up.a"] and found[0][2][1:] == ["mean", "up.b"]


@pytest.mark.slow
def test_lines_of_the_model_stay_in_the_picture_without_strides(show, content):
    tab = show(content)
    tab.evaluate(
        """() => { const box = document.querySelector("#modelbody select");
        const made = artifacts.find(a => a.language === "graph" && parseable(a) &&
            a.stage !== "inductor");
        const name = `${made.unit}: ${made.title}`;
        box.value = [...box.options].find(o => o.textContent === name).value;
        box.dispatchEvent(new Event("change"));
        function parseable(a) { return /: f32\\[[^\\]]*\\]\\.strides.* = /.test(a.text); } }"""
    )
    tab.get_by_role("button", name="open all modules").click()
    told = tab.evaluate(
        """() => { const svg = document.querySelector("#modelbody svg"), box = svg.viewBox.baseVal;
        const around = [...svg.querySelectorAll("path.edge")].map(e => e.getBBox());
        return [around.every(b => b.x >= box.x && b.x + b.width <= box.x + box.width),
            [...svg.querySelectorAll(".onedge")].map(e => e.textContent).join(" ")]; }"""
    )
    assert told[0] and "f32[" in told[1] and "strides" not in told[1]


def answers(tab):
    """What "In short" says, by title."""
    titles = tab.locator("#shortbody dt").all_inner_texts()
    return dict(zip(titles, tab.locator("#shortbody dd").all_inner_texts()))


@pytest.mark.slow
def test_that_nothing_went_wrong_is_an_answer_too(show, content, broken):
    tab = show(content)
    assert answers(tab)["Not compiled"].startswith("nothing:")
    assert not answers(tab)["Compiled again"].startswith("never")
    tab = show(broken)
    assert answers(tab)["Compiled again"].startswith("never:")
    assert not answers(tab)["Not compiled"].startswith("nothing")


@pytest.mark.slow
def test_whose_times_the_longest_kernel_s_are_and_what_does_not_wait(show, content):
    tab = show(content)
    tab.evaluate(
        """() => { const k = run.costs[0], part = {...k.parts[0], graph: "", steps: []};
        const outside = {...k, name: "randn", how: "eager kernel", ns: 3e9, calls: 7,
            first_calls: 2, first_ns: 5e6, parts: [{...part, ns: 3e9}]};
        run.costs.unshift(outside);
        run.facts.reads = [{line: "", what: "item", count: 2, ns: 1, host: true},
            {line: "", what: "bool", count: 2, ns: 1, host: false}];
        drawShort(); }"""
    )
    told = answers(tab)
    longest = told["Longest kernel"]
    assert "not counted: its 2 first calls, which made plans (5.00 ms)" in longest
    assert "in 7 calls, 100 % of what all kernels and library routines took (" in longest
    assert "Longest in compiled code: " in longest
    numbers, truth = told["Python waits"].splitlines()
    assert "does not wait" in numbers and "does not wait" not in truth


@pytest.mark.slow
def test_what_is_jumped_to_stands_below_a_high_head(show, content):
    tab = show(content)
    tab.evaluate(
        """() => { const box = $("error"); box.hidden = false;
        box.textContent = "The program stopped with " + "an error of many words ".repeat(40); }"""
    )
    tab.wait_for_timeout(100)  # until the head is laid out
    tab.locator("nav a", has_text="Why").click()
    head = tab.locator("header").bounding_box()
    title = tab.locator("#why h2").bounding_box()
    assert head["height"] > 120 and title["y"] >= head["y"] + head["height"]


@pytest.mark.slow
def test_routines_whose_code_is_onednn_s_say_so(show, content):
    tab = show(content)
    told = tab.evaluate(
        """() => { const text = "ret\\n", k = {name: "product", how: "library routine", calls: 1,
            ns: 9e9, host: false, moved_bytes: 1, operations: 1, first_calls: 0, first_ns: 0,
            fastest_ns: 0, lines: []};
        addArtifact({group: "Kernel product", kernel: "product", language: "asm", text, spans: [],
            title: "Machine code, generated by oneDNN (product)", stage: "aten_cpu"});
        run.costs.unshift({...k, parts: [{...k, graph: "", steps: []}]});
        drawShort(); drawTime();
        return document.querySelector("#kernels tbody tr").textContent; }"""
    )
    assert "library routine, its code by oneDNN" in told
    assert "a library routine, its code by oneDNN: " in answers(tab)["Longest kernel"]
