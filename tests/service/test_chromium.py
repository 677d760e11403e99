"""The browser's client in headless Chromium, against the service with a hostile machine in between."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from chromium import MISSING, Browser, PageError, Reply, Request, Tab, program

from privrl.service.application import make_application
from privrl.service.demo_endpoints import begin_demo, demo_endpoints
from privrl.service.public_endpoints import ENDPOINTS
from privrl.studies.local.document import identity_of
from privrl.studies.local.wire import Message

from .serving import LOCAL, Service, serving, study_file
from .vectors import VECTORS

pytestmark = pytest.mark.skipif(program() is None, reason=MISSING)
HERE = Path(__file__).parent
STEPS = [{"state": state, "action": 1, "next_state": 1} for state in (0, 1, 1, 1)]
REPORT = f"return await study.report({json.dumps(STEPS)});"
Fault = Callable[[Request, Reply], Reply]


class Between:
    """Forwards to the service, notes what was sent to it, and may change what it answers."""

    def __init__(self, services: list[Service], thread: ThreadPoolExecutor) -> None:
        self._services, self._thread = {one.served.name: one for one in services}, thread
        self._faults: dict[str, Fault] = {}
        self.seen: list[Request] = []
        self.statuses: list[int] = []

    def hash(self, study: str) -> str:
        """What the app ships."""
        return identity_of(self._services[study].served.document).hex()

    def answer(self, request: Request) -> Reply:
        if request.path.startswith("/client/"):
            return Reply((VECTORS.parent / request.path.rsplit("/", 1)[1]).read_bytes(), _kind(request.path))
        if request.path.startswith("/tests/"):
            return Reply((HERE / request.path.rsplit("/", 1)[1]).read_bytes(), _kind(request.path))
        if not request.path.startswith(("/v1/", "/demo/")):
            return Reply(status=404)
        self.seen.append(request)
        service = self._services[request.path.split("/")[3] if request.path.startswith("/v1/") else "demo"]
        made = self._thread.submit(service.ask, request.method, request.path, request.body).result()
        headers = {**made.headers, "cache-control": "no-store"}  # a hostile server does not let a browser keep plans
        reply = Reply(made.body, made.headers.get("content-type", "text/plain"), made.status, headers)
        fault = next((fault for end, fault in self._faults.items() if request.path.endswith(end)), None)
        if request.method == "POST" and request.path.endswith("/reports"):
            self.statuses.append(made.status)
        return reply if fault is None else fault(request, reply)

    @contextlib.contextmanager
    def changing(self, end: str, fault: Fault) -> Iterator[None]:
        """While this is open, answers at addresses with this end are changed."""
        self._faults[end] = fault
        yield
        del self._faults[end]

    def sent(self) -> list[bytes]:
        """The reports that left the browser since the last call; whatever else left it had no body."""
        assert not any(one.body for one in self.seen if not one.path.endswith("/reports"))
        reports = [one.body for one in self.seen if one.method == "POST" and one.path.endswith("/reports")]
        self.seen.clear()
        return reports

    def wait_for_a_report(self) -> None:
        """Until one has come in; it may not be answered yet."""
        while not any(one.path.endswith("/reports") for one in self.seen):
            time.sleep(0.001)

    def counted(self) -> list[int]:
        """What the service answered to reports since the last call."""
        statuses, self.statuses = self.statuses, []
        return statuses


def _kind(path: str) -> str:
    return "text/javascript" if path.endswith(".mjs") else "application/json"


@pytest.fixture(scope="module")
def between(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Between]:
    with ThreadPoolExecutor(1) as thread, contextlib.ExitStack() as stack:
        files = [study_file(tmp_path_factory.mktemp(name), LOCAL, name=name) for name in ("phone", "watch")]
        files.append(study_file(tmp_path_factory.mktemp("diary"), LOCAL, name="diary", max_episodes_per_unit=3))
        files.append(begin_demo(tmp_path_factory.mktemp("demo")))
        services = [thread.submit(stack.enter_context, serving(file)).result() for file in files]
        services[-1].app = make_application(services[-1].studies, (*ENDPOINTS, *demo_endpoints(files[-1])))
        yield Between(services, thread)
        thread.submit(stack.close).result()


@pytest.fixture(scope="module")
def browser(between: Between, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with contextlib.closing(Browser(tmp_path_factory.mktemp("profile"), between.answer)) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_sent_yet(between: Between) -> None:
    between.sent()
    between.counted()


def opened(between: Between, study: str = "phone", cap: float = 1.0) -> str:
    """Code that opens a study in a page, with the hash that the app ships."""
    return f"""
    const client = await import("/client/privrl-client.mjs");
    const study = await client.Study.open("/v1/studies/{study}", {{ hash: "{between.hash(study)}", cap: {cap} }});
    """


def reporting(between: Between, study: str = "phone", cap: float = 1.0) -> str:
    """Code of a whole visit."""
    return opened(between, study, cap) + "await study.begin();" + REPORT


def refused(tab: Tab, code: str) -> str:
    """The words of a refusal."""
    with pytest.raises(PageError) as caught:
        tab.run(code)
    return str(caught.value)


def test_vectors_and_damaged_answers(browser: Browser) -> None:
    found = browser.tab("vectors").run("""
        const client = await import("/client/privrl-client.mjs");
        const vectors = await (await fetch("/client/vectors.json")).json();
        const { replay } = await import("/tests/replay.mjs"), { hostile } = await import("/tests/hostile.mjs");
        return [isSecureContext, await replay(client, vectors), await hostile(client, vectors)];
    """)
    assert found[:2] == [True, []]
    assert len(found[2]) == 1


def test_an_answer_is_lost_and_the_page_reloaded(browser: Browser, between: Between) -> None:
    tab = browser.tab("lost")
    with between.changing("/reports", lambda request, reply: Reply(status=0)):
        assert "TypeError" in refused(tab, reporting(between))
    lost = between.sent()
    assert len(set(lost)) == 1 and between.counted()[0] == 201
    tab.reload()
    assert tab.run(reporting(between)) is True
    tab.reload()
    assert tab.run(opened(between) + "return await study.send();") is True
    assert between.sent() == lost[:1] * 2
    assert between.counted() == [200, 200]


def test_a_page_with_a_ticket_works_offline(browser: Browser, between: Between) -> None:
    """With the module that the npm package exports; the ledger knows the report, also if it is sent later."""
    tab = browser.tab("offline")
    code = opened(between).replace("privrl-client.mjs", "index.mjs").replace("cap:", "retrySeconds: 0, cap:")
    begun = tab.run(code + "return (await study.begin()).actions;")
    tab.reload()
    between.sent()
    with between.changing("", lambda request, reply: Reply(status=0)):
        played, status = tab.run(
            code
            + f"""
            await study.begin();
            const failed = await study.report({json.dumps(STEPS)}).catch((error) => error);
            return [study.actions, failed instanceof client.ServiceError && failed.status];
            """
        )
    assert played == begun and status == 0
    assert {one.path.rsplit("/", 1)[1] for one in between.seen} == {"reports"}
    lost = between.sent()
    tab.reload()
    assert tab.run(code + "return await study.send();") is True
    assert set(between.sent()) == set(lost) and len(set(lost)) == 1
    assert "the cap on epsilon is reached" in refused(tab, reporting(between, "watch", cap=1.5))


def test_the_browser_is_killed_after_the_report_was_kept(browser: Browser, between: Between) -> None:
    tab = browser.tab("killed")
    kept = tab.run(
        opened(between)
        + f"""
        await study.begin();
        const get = study.get;
        const stuck = new Promise((reached) => {{
          study.get = (url, ...more) => url.endsWith("/reports") ? new Promise(reached) : get(url, ...more);
        }});
        study.report({json.dumps(STEPS)});
        await stuck;
        return Array.from((await study.kept()).bytes);
        """
    )
    assert between.sent() == []
    browser.kill()
    browser.start()
    assert browser.tab("killed").run(opened(between) + "return await study.send();") is True
    assert between.sent() == [bytes(kept)]
    assert between.counted() == [201]


@pytest.mark.slow
def test_a_browser_killed_at_any_moment_sends_one_message(browser: Browser, between: Between) -> None:
    for number in range(16):
        origin = f"kill{number}"
        tab = browser.tab(origin)
        tab.run(opened(between) + "globalThis.study = await study.begin();")
        tab.start(REPORT)
        if number % 2:
            time.sleep(0.004 * number)
        else:
            between.wait_for_a_report()
        browser.kill()
        before = between.sent()
        browser.start()
        other = reporting(between).replace(json.dumps(STEPS), "[]")  # another record, after the crash
        assert browser.tab(origin).run(other) is True
        reports = before + between.sent()
        assert len(set(reports)) == 1
        assert between.counted()[-1] == (200 if before else 201)


@pytest.mark.slow
def test_a_browser_killed_at_any_moment_reports_no_more_visits_than_it_may(browser: Browser, between: Between) -> None:
    for number in range(3):
        told: set[bytes] = set()
        for kill in range(4):
            browser.tab(f"kills{number}").start(reporting(between, "diary"))
            if kill % 2:
                time.sleep(0.1 * (number + kill))
            else:
                between.wait_for_a_report()
            browser.kill()
            told |= set(between.sent())
            browser.start()
            assert browser.tab(f"kills{number}").run(reporting(between, "diary")) is True
            told |= set(between.sent())
        assert len(told) == 3


def one_message(tabs: list[Tab], between: Between) -> bytes:
    """What two tabs send that report different records of one visit at once: the same, which counts once."""
    for tab, steps in zip(tabs, (STEPS, []), strict=True):
        tab.start(f"return await study.report({json.dumps(steps)});")
    assert [tab.result() for tab in tabs] == [True, True]
    reports = between.sent()
    assert len(reports) == 2 and len(set(reports)) == 1
    assert sorted(between.counted()) == [200, 201]
    return reports[0]


def test_two_tabs_make_one_message(browser: Browser, between: Between) -> None:
    for number in range(2):
        tabs = [browser.tab(f"tabs{number}") for _ in range(2)]
        for tab in tabs:
            tab.start(opened(between) + "globalThis.study = await study.begin();")
        assert [tab.result() for tab in tabs] == [None, None]
        one_message(tabs, between)


def test_visits_are_counted_across_lost_answers_and_reloads(browser: Browser, between: Between) -> None:
    """Three visits are reported, each once, with one charge for all; a further one sends the last report again."""
    tab, told = browser.tab("visits"), []
    for _ in range(3):
        with between.changing("/reports", lambda request, reply: Reply(status=0)):
            assert "TypeError" in refused(tab, reporting(between, "diary"))
        lost = between.sent()
        assert len(set(lost)) == 1 and between.counted()[0] == 201
        tab.reload()
        assert tab.run(reporting(between, "diary").replace(json.dumps(STEPS), "[]")) is True
        assert between.sent() == lost[:1] and between.counted() == [200]
        told += lost[:1]
        tab.reload()
    assert len(set(told)) == 3
    kept = opened(between, "diary", 0.001) + "await study.begin(); const { visit, epsilon } = await study.kept();"
    visit, charged = tab.run(kept + "return [visit, epsilon];")
    assert visit == 2 and 0.999 < sum(map(float.fromhex, charged)) <= 1.0 and len(charged) == 3
    assert tab.run(reporting(between, "diary", 0.001)) is True
    assert between.sent() == told[-1:] and between.counted() == [200]


def test_two_tabs_make_one_message_for_each_visit(browser: Browser, between: Between) -> None:
    tabs, told = [browser.tab("twice") for _ in range(2)], []
    begin = opened(between, "diary") + "globalThis.study = await study.begin(); return study.visit;"
    for visit in range(3):
        for tab in tabs:
            tab.start(begin)
        assert [tab.result() for tab in tabs] == [visit, visit]
        told.append(one_message(tabs, between))
    assert len(set(told)) == 3


def test_a_tab_that_stayed_behind_draws_nothing_for_the_next_visit(browser: Browser, between: Between) -> None:
    early, late = (browser.tab("behind") for _ in range(2))
    begin = opened(between, "diary") + "globalThis.study = await study.begin();"
    early.run(begin)
    late.run(begin + REPORT)
    assert late.run(begin + "return study.visit;") == 1
    first = between.sent()
    assert early.run(REPORT) is False
    assert between.sent() == []
    assert late.run(REPORT) is True
    assert len({*first, *between.sent()}) == 2
    assert "the cap on epsilon is reached" in refused(early, reporting(between, "phone"))  # all is charged


def test_a_server_that_raises_the_number_of_reports_gets_nothing(browser: Browser, between: Between) -> None:
    tab = browser.tab("raised")

    def more(request: Request, reply: Reply) -> Reply:
        document = {**json.loads(reply.body), "reports": 9}
        return reply._replace(body=json.dumps(document, sort_keys=True, separators=(",", ":")).encode())

    for study in ("diary", "phone"):
        with between.changing(f"/{study}", more):
            assert "the study is not the one this app was built for" in refused(tab, reporting(between, study))
    assert between.sent() == []


def test_a_server_that_changes_the_study_gets_nothing(browser: Browser, between: Between) -> None:
    tab = browser.tab("changed")

    def louder(request: Request, reply: Reply) -> Reply:
        document = json.loads(reply.body)
        document["parts"][0]["epsilon"] = (8.0).hex()
        return reply._replace(body=json.dumps(document, sort_keys=True, separators=(",", ":")).encode())

    def other_plan(request: Request, reply: Reply) -> Reply:
        actions = json.loads(reply.body)["actions"]
        return reply._replace(body=json.dumps({"actions": [[1 - a for a in row] for row in actions]}).encode())

    with between.changing("/phone", louder):
        assert "the study is not the one this app was built for" in refused(tab, reporting(between))
    with between.changing("/phone", lambda request, reply: reply._replace(body=reply.body + b"\n")):
        assert "the study is not the one this app was built for" in refused(tab, reporting(between))
    tab.run(opened(between) + "await study.begin();")
    tab.reload()
    with between.changing("/plans/0", other_plan):
        assert "another plan was published under this number" in refused(tab, reporting(between))
    assert between.sent() == []
    assert tab.run(reporting(between)) is True


def test_the_ledger_is_over_all_studies_of_an_origin(browser: Browser, between: Between) -> None:
    tab = browser.tab("ledger")
    assert tab.run(reporting(between, cap=1.5)) is True
    assert len(between.sent()) == 1
    assert "the cap on epsilon is reached" in refused(tab, reporting(between, "watch", cap=1.5))
    assert "give a cap" in refused(tab, reporting(between, "watch").replace("cap: 1.0", ""))
    tab.reload()
    assert "the cap on epsilon is reached" in refused(tab, reporting(between, "watch", cap=1.9999))
    assert between.sent() == []
    assert tab.run(reporting(between, "watch", cap=2.0)) is True
    assert tab.run(reporting(between, cap=0.1)) is True  # only sent again
    assert between.counted() == [201, 201, 200]


FAILING = [  # what fails, and whether it does after the visit has begun
    ('Object.defineProperty(globalThis, "indexedDB", { value: undefined });', False),
    ('IDBFactory.prototype.open = () => { throw new DOMException("", "SecurityError"); };', False),
    ('IDBObjectStore.prototype.put = () => { throw new DOMException("", "QuotaExceededError"); };', True),
    ("const put = IDBObjectStore.prototype.put; IDBObjectStore.prototype.put = function (value) {"
     " put.call(this, value); this.transaction.abort(); };", True),
    ('Object.defineProperty(IDBTransaction.prototype, "durability", { value: "relaxed" });', True),
    ('const data = indexedDB.open("privrl"); await new Promise((done) => { data.onsuccess = done; });'
     'const all = data.result.transaction("studies", "readwrite").objectStore("studies").clear();'
     "await new Promise((done) => { all.onsuccess = done; });", True),
]  # fmt: skip


def test_nothing_leaves_where_nothing_can_be_kept(browser: Browser, between: Between) -> None:
    tab = browser.tab("failing")
    begin = opened(between) + "await study.begin();"
    for failing, after_begin in FAILING:
        refused(tab, begin + failing + REPORT if after_begin else failing + begin + REPORT)
        tab.reload()
    assert between.sent() == []
    assert tab.run(begin + REPORT) is True


def test_an_app_of_another_origin_takes_part(browser: Browser, between: Between) -> None:
    tab = browser.tab("app")
    code = reporting(between).replace('"/v1/', '"http://" + location.host.replace("app", "study") + "/v1/')
    assert tab.run(code) is True
    assert len(between.sent()) == 1 and between.counted() == [201]


def test_an_ended_ticket_is_replaced_until_there_is_a_report(browser: Browser, between: Between) -> None:
    tab = browser.tab("ended")
    numbers = tab.run(
        opened(between)
        + f"""
        const numbers = [], now = Date.now, later = () => now() + 1e9;
        for (Date.now of [now, now, later, now]) numbers.push((await study.begin()).ticket.number);
        await study.report({json.dumps(STEPS)});
        Date.now = later;
        numbers.push((await study.begin()).ticket.number);
        return numbers.map(Number);
        """
    )
    assert numbers[0] == numbers[1] < numbers[2] == numbers[3] == numbers[4]
    assert between.counted() == [201]


def test_the_demo_shows_what_leaves_the_browser(browser: Browser, between: Between) -> None:
    shown = """
        const page = globalThis.page, text = (id) => page.document.getElementById(id).textContent;
        const until = async (reached) => { while (!reached()) await new Promise((done) => setTimeout(done, 20)); };
        const sends = () => page.document.querySelectorAll("#requests .body td:nth-child(3)").length;
    """
    tab = browser.tab("demo")
    found = tab.run(
        'globalThis.page = open("/demo/");'
        + shown
        + """
        await until(() => page.document?.getElementById("right")?.disabled === false);
        for (let i = 0; i < 20; i++) page.document.getElementById(i % 6 ? "right" : "left").click();
        await until(() => sends() === 1 && !page.document.getElementById("again").disabled);
        page.document.getElementById("again").click();
        await until(() => sends() === 2);
        const held = Array.from(page.document.querySelectorAll("#set .held"), (one) => one.textContent);
        return [text("bytes"), text("spent"), text("truth"), held, text("trouble")];
        """
    )
    reports = between.sent()
    assert between.counted() == [201, 200]
    assert len(reports) == 2 and len(set(reports)) == 1
    assert bytes.fromhex(found[0]) == reports[0]
    assert found[1] == "epsilon 1 of 2 spent" and found[4] == ""
    symbols = Message.from_bytes(reports[0]).parts[0].tolist()
    assert found[3] == ["never" if symbol == 6 else f"pool {symbol + 1}" for symbol in symbols]
    assert found[2].startswith(("never, ", "pool "))
    again = tab.run(
        shown
        + """
        page.location.reload();
        await until(() => page.document?.getElementById("truth")?.textContent.startsWith("not") && text("spent"));
        return [text("bytes"), text("spent")];
        """
    )
    assert again == found[:2]
    assert between.sent() == []


def test_the_demo_shows_what_was_spent_also_without_an_answer(browser: Browser, between: Between) -> None:
    """The report was drawn, charged and kept; only its answer was lost."""
    with between.changing("/reports", lambda request, reply: Reply(status=0)):
        found = browser.tab("unanswered").run(
            """
            globalThis.page = open("/demo/");
            const until = async (reached) => { while (!reached()) await new Promise((done) => setTimeout(done, 20)); };
            const page = globalThis.page, at = (id) => page.document?.getElementById(id);
            await until(() => at("right")?.disabled === false);
            for (let i = 0; i < 20; i++) at("right").click();
            await until(() => at("trouble").textContent && !at("again").disabled);
            return [at("spent").textContent, at("trouble").textContent, at("bytes").textContent.length > 100];
            """
        )
    assert found[0] == "epsilon 1 of 2 spent" and "kept and charged" in found[1] and found[2]
    assert len(set(between.sent())) == 1  # a browser may try again by itself


def test_a_full_study_is_followed_without_a_report(browser: Browser, between: Between) -> None:
    full = Reply(b"{}", "application/problem+json", 410)
    with between.changing("/tickets", lambda request, reply: full):
        code = opened(between, "watch", 1.0) + "await study.begin(); const action = study.act(0, 0);"
        found = browser.tab("full").run(code + f"return [action, await study.report({json.dumps(STEPS)})];")
    assert found[0] in (0, 1) and found[1] is False and between.sent() == []
