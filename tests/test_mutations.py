"""Breaks the privacy of a copy of privrl, one line at a time, and sees to it that some test notices.

Each mutation halves noise, doubles or frees a contribution, uses a key twice, draws a release again, or lets one
person's record move another. `docs/mutations.md` lists which test notices which.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from chromium import MISSING, program

ROOT = Path(__file__).parents[1]
ENTRY_BY_ENTRY = "return jnp.broadcast_to(self.scale, self.shape) * _of_shape(white, self.shape)"


@dataclass(frozen=True)
class Mutation:
    """`old` becomes `new` in one file of the package (its `nth` occurrence), and `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    nth: int = 0

    def apply(self, package: Path) -> None:
        path = package / self.file
        parts = path.read_text().split(self.old)
        assert len(parts) > self.nth + 1, f"`{self.old}` is not in {self.file} any more: bring the list up to date."
        before, after = self.old.join(parts[: self.nth + 1]), self.old.join(parts[self.nth + 1 :])
        path.write_text(before + self.new + after)


NOISE = (
    Mutation(
        "Gaussian noise halved",
        "privacy/noise/laws.py",
        ENTRY_BY_ENTRY,
        f"{ENTRY_BY_ENTRY} / 2",
        "privacy/test_noise.py",
    ),
    Mutation(
        "Laplace noise halved",
        "privacy/noise/laws.py",
        ENTRY_BY_ENTRY,
        f"{ENTRY_BY_ENTRY} / 2",
        "privacy/test_noise.py",
        1,
    ),
    Mutation(
        "symmetric noise too small",
        "privacy/noise/laws.py",
        "return self.scale * (z + z.T) / 2.0",
        "return self.scale * (z + z.T) / 4.0",
        "privacy/test_noise.py",
    ),
    Mutation(
        "noise of a table halved",
        "privacy/trust/curator.py",
        "Floating(contents.sensitivity, parameter)",
        "Floating(contents.sensitivity, 2 * parameter)",
        "privacy/test_curator.py",
    ),
    Mutation(
        "noise on the lattice halved",
        "privacy/noise/lattice.py",
        "noise = math.ceil(units / parameter * (1.0 + _MARGIN))",
        "noise = math.ceil(units / parameter / 2)",
        "privacy/test_lattice.py",
    ),
    Mutation(
        "noise beside the diagonal halved",
        "privacy/noise/lattice.py",
        "_over_root_two(self.noise), (int((~diagonal).sum()),)",
        "_over_root_two(self.noise) // 2, (int((~diagonal).sum()),)",
        "privacy/test_lattice.py",
    ),
    Mutation(
        "discrete Gaussian noise halved",
        "privacy/noise/discrete.py",
        'return _draw(words, _GAUSSIAN, _checked("s", s), shape)',
        'return _draw(words, _GAUSSIAN, _checked("s", s), shape) // 2',
        "privacy/test_discrete.py",
    ),
    Mutation(
        "discrete Laplace noise halved",
        "privacy/noise/discrete.py",
        'return _draw(words, _LAPLACE, _checked("t", t), shape)',
        'return _draw(words, _LAPLACE, _checked("t", t), shape) // 2',
        "privacy/test_discrete.py",
    ),
    Mutation(
        "noise of running sums halved",
        "privacy/trust/channels.py",
        "Release(running + noise.scaled(white), law)",
        "Release(running + noise.scaled(white) / 2, law)",
        "privacy/test_channels.py",
    ),
    Mutation(
        "noise of a local message halved",
        "privacy/trust/vector_channels.py",
        "contribution(record, question) + noise",
        "contribution(record, question) + noise / 2",
        "privacy/test_channels.py",
    ),
    Mutation(
        "noise of exact channels halved",
        "privacy/trust/exact_channels.py",
        "factor=factor,",
        "factor=0.5 * factor,",
        "privacy/test_exact_channels.py",
    ),
    Mutation(
        "lies half as frequent",
        "privacy/noise/subset.py",
        "chance < self.lie_probability",
        "chance < self.lie_probability / 2",
        "privacy/test_subset.py",
    ),
    Mutation(
        "exact lies half as frequent",
        "privacy/noise/discrete.py",
        "[coin < threshold]",
        "[2 * coin < threshold]",
        "privacy/test_discrete.py privacy/test_subset.py",
    ),
    Mutation(
        "a tree's depth forgotten",
        "privacy/continual/mechanisms.py",
        "return math.sqrt(self.steps.bit_length())",
        "return 1.0",
        "privacy/test_continual.py",
    ),
    Mutation(
        "sampling under replacement with half the noise",
        "privacy/trust/curator.py",
        'if sampling < 1.0 and adjacency == "replace-one":',
        "if False:",
        "test_patterns.py privacy/test_curator.py",
    ),
)

CONTRIBUTIONS = (
    Mutation(
        "counts doubled",
        "statistics/counts.py",
        "return place, jnp.where(inside, self._weight(rows), 0.0)",
        "return place, 2 * jnp.where(inside, self._weight(rows), 0.0)",
        "statistics/test_counts.py",
    ),
    Mutation(
        "every visit counted as a first one",
        "statistics/counts.py",
        "weight = jnp.where(first_visits(rows, weight > 0), weight, 0.0)",
        "pass",
        "statistics/test_counts.py",
    ),
    Mutation(
        "Gram matrices doubled",
        "statistics/moments.py",
        "weights[:, None, None] * (phi[:, :, None]",
        "2 * weights[:, None, None] * (phi[:, :, None]",
        "statistics/test_moments.py",
    ),
    Mutation(
        "targets doubled",
        "statistics/moments.py",
        "self._weighted(rows, y)[:, None] * phi",
        "2 * self._weighted(rows, y)[:, None] * phi",
        "statistics/test_moments.py",
    ),
    Mutation(
        "values not clipped",
        "statistics/moments.py",
        "values = self._in_range(self.values)",
        "values = self.values",
        "statistics/test_moments.py",
    ),
    Mutation(
        "gradients doubled",
        "statistics/gradients.py",
        "return clip_by_norm(gradient, self.norm)",
        "return 2 * clip_by_norm(gradient, self.norm)",
        "learners/test_q_learning.py",
    ),
    Mutation(
        "stays not clipped",
        "statistics/differences.py",
        "return bound / jnp.maximum(jnp.sqrt((entries**2).sum()), bound)",
        "return jnp.ones(())",
        "statistics/test_differences.py",
    ),
    Mutation(
        "packed Gram matrices doubled",
        "statistics/regressions.py",
        "return weighted[:, i] * phi[:, j] * factor[None]",
        "return 2 * weighted[:, i] * phi[:, j] * factor[None]",
        "statistics/test_regressions.py",
    ),
    Mutation(
        "regressions doubled",
        "statistics/regressions.py",
        "return selected[:, :, None] * weighted[:, None, :]",
        "return 2 * selected[:, :, None] * weighted[:, None, :]",
        "statistics/test_regressions.py",
    ),
    Mutation(
        "mixtures doubled",
        "statistics/mixtures.py",
        "return place, jnp.concatenate([gram, phi * target[:, None]], axis=1)",
        "return place, 2 * jnp.concatenate([gram, phi * target[:, None]], axis=1)",
        "statistics/test_mixtures.py",
    ),
    Mutation(
        "surprises doubled",
        "statistics/innovations.py",
        "return jnp.concatenate([first, clip_by_norm(",
        "return 2 * jnp.concatenate([first, clip_by_norm(",
        "statistics/test_innovations.py",
    ),
    Mutation(
        "moments of linear systems doubled",
        "statistics/lq_moments.py",
        "return (z.T @ z)[np.triu_indices(z.shape[1])]",
        "return 2 * (z.T @ z)[np.triu_indices(z.shape[1])]",
        "statistics/test_lq_moments.py",
    ),
    Mutation(
        "norms not checked in whole numbers",
        "privacy/noise/lattice.py",
        "return math.floor(largest**2) if",
        "return 4 * math.floor(largest**2) if",
        "privacy/test_lattice.py",
    ),
)

KEYS = (
    Mutation(
        "one key for all blocks",
        "studies/simulation/simulated_loop.py",
        "jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(self.noise, number), t), i)",
        "jax.random.fold_in(jax.random.fold_in(self.noise, number), i)",
        "test_contract.py -k online and ucbvi",
    ),
    Mutation(
        "one key for all statistics",
        "studies/simulation/simulated_loop.py",
        "jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(self.noise, number), t), i)",
        "jax.random.fold_in(jax.random.fold_in(self.noise, t), i)",
        "test_run.py -k key_of_its_own",
    ),
    Mutation(
        "one key for everybody's reports",
        "studies/simulation/simulated_loop.py",
        "jax.random.fold_in(jax.random.fold_in(self.reports, t), index)",
        "jax.random.fold_in(self.reports, t)",
        "test_contract.py -k online and ucbvi",
    ),
    Mutation(
        "labels drawn twice",
        "privacy/noise/sources.py",
        "if digest in self._drawn:",
        "if False:",
        "privacy/test_sources.py",
    ),
    Mutation(
        "streams that repeat",
        "privacy/noise/sources.py",
        "return Words()",
        "return Words(bytes(32))",
        "privacy/test_sources.py",
    ),
)

REDRAWN = (
    Mutation(
        "a kept release drawn again",
        "privacy/store/releases.py",
        "            self._engine.tell_witness()\n            return integers(*stored)\n        with",
        "            self._engine.tell_witness()\n            return draw()\n        with",
        "privacy/test_store.py",
    ),
    Mutation(
        "a burnt release drawn again",
        "privacy/store/releases.py",
        'elif self.after_crash == "burn":',
        "elif False:",
        "privacy/test_store.py",
    ),
    Mutation(
        "a second report",
        "studies/local/client.py",
        "        kept = self._store.value(name)\n",
        "        kept, name = None, f'{name} {id(self)}'\n",
        "test_client.py",
    ),
    Mutation(
        "the noise of a real report left out",
        "privacy/trust/vector_channels.py",
        "if self.lattice.noise else truth",
        "if not self.lattice.noise else truth",
        "privacy/test_reports.py",
    ),
    Mutation(
        "rows that were changed behind the chain",
        "privacy/store/file.py",
        "            _chain.verified(self.execute, self.title)",
        "            pass",
        "privacy/test_store_chain.py",
    ),
    Mutation(
        "an older copy put back",
        "privacy/store/witness.py",
        "if found is None or found.hash != link.hash:",
        "if False:",
        "privacy/test_store_chain.py",
    ),
    Mutation(
        "an older copy put back, and an audit log",
        "privacy/store/log.py",
        "if event(found.number) != found:",
        "if False:",
        "privacy/test_store_log.py",
    ),
    Mutation(
        "a contribution to a sealed sum",
        "privacy/store/sums.py",
        "if self.sealed(name) or",
        "if False or",
        "privacy/test_store_queues.py",
    ),
    Mutation(
        "more releases than declared",
        "privacy/accounting/ledger.py",
        "line.spent.append(line.ahead.pop(0))",
        "line.spent.append(line.ahead[0])",
        "privacy/test_ledger.py",
    ),
)

PLACES = (
    Mutation(
        "a block closes when everybody has finished",
        "studies/live/patience.py",
        "return self._now() >= closing or",
        "return self._store.count(self.sum_name(block, last)) == self.size(block) or self._now() >= closing or",
        "test_agent_arrivals.py",
    ),
    Mutation(
        "people enter blocks as they end",
        "studies/live/agent.py",
        "(self._arrivals.block(ticket), plan)",
        "(self._plans.closed, plan)",
        "test_agent_arrivals.py",
    ),
    Mutation(
        "a late record counted",
        "studies/live/agent.py",
        'scope="people", closed=closed)',
        'scope="people")',
        "test_agent_arrivals.py -k transaction",
    ),
    Mutation(
        "a clock set back opens a block",
        "studies/live/patience.py",
        "or self._store.sealed(self.sum_name(block, last))",
        "",
        "test_agent_arrivals.py",
    ),
    Mutation(
        "somebody steered by a newer plan than the one that they answer to",
        "studies/live/agent.py",
        "return self._plans[ticket.plan]",
        "return self._plans[-1]",
        "test_agent_lag.py -k stay",
    ),
    Mutation(
        "one more visit of a person counted than was paid for",
        "studies/live/visit_limits.py",
        "for number in range(times):",
        "for number in range(times + 1):",
        "test_agent_returns.py -k fills",
    ),
    Mutation(
        "visits counted that are too near to each other",
        "studies/live/visit_limits.py",
        "if block < last + distance:",
        "if block < last:",
        "test_agent_returns.py -k distance",
    ),
    Mutation(
        "two people who come back taken for two records",
        "privacy/trust/repeated.py",
        "return one * (math.sqrt(2.0) if apart else 2.0)",
        "return one",
        "privacy/test_repeated.py",
    ),
    Mutation(
        "terms taken to add up to less than they do",
        "privacy/trust/repeated.py",
        'apart = mechanism == "gaussian" and statistic.nonnegative',
        'apart = mechanism == "gaussian"',
        "privacy/test_repeated.py",
    ),
    Mutation(
        "visits in several epochs at the price of one",
        "privacy/continual/epochs.py",
        "moved[p, k] = (part.sensitivity(often) / part.factor) ** 2",
        "moved[p, k] = 1.0",
        "privacy/test_epochs.py -k spreading",
    ),
    Mutation(
        "the noise of an epoch not scaled to its columns",
        "privacy/continual/epochs.py",
        "inner.at[:rows].set(after), part.factor * noise",
        "inner.at[:rows].set(after), noise",
        "privacy/test_epochs.py -k written_out",
    ),
    Mutation(
        "every report of a device at the whole epsilon",
        "privacy/trust/privatizers.py",
        "Request(d.name, mechanism, d.weight, d.touches * messages, d.group, d.sampling)",
        "Request(d.name, mechanism, d.weight, d.touches, d.group, d.sampling)",
        "test_client_visits.py -k budget",
    ),
    Mutation(
        "one more visit reported than was paid for",
        "studies/local/client.py",
        "not 0 <= visit < times:",
        "not 0 <= visit <= times:",
        "test_client_visits.py -k no_more",
    ),
    Mutation(
        "add-remove online",
        "studies/study.py",
        'if privatizer.adjacency != "replace-one"',
        'if privatizer.adjacency == "never"',
        "test_agent.py -k neighbour",
    ),
)
SHARDS = (
    Mutation(
        "every shard begins with the first coin",
        "studies/offline/sharded_records.py",
        "firsts = (np.cumsum(numbers) - numbers).tolist()",
        "firsts = [0] * len(numbers)",
        "test_shards.py -k sums_are_those_of_one_process",
    ),
    Mutation(
        "a person in two shards",
        "data/tables/shards.py",
        "            self._refuse_people_in_two()\n",
        "",
        "test_shards.py -k in_two_shards",
    ),
    Mutation(
        "the sum of a worker that died is forgotten",
        "executors/processes.py",
        "again = [*worker.added, *",
        "again = [*",
        "executors/test_executors.py -k counts_once",
    ),
    Mutation(
        "workers quote what they found",
        "executors/failures.py",
        "return Failure(kind.__name__)",
        "return Failure(str(error))",
        "executors/test_executors.py -k our_words",
    ),
)
SETTINGS = (
    Mutation(
        "negative weights of differences",
        "statistics/differences.py",
        "check_not_negative(**{name: getattr(self, name) for name in names})",
        "del names",
        "statistics/test_settings.py -k weights_of_differences",
    ),
    Mutation(
        "an unknown way of counting",
        "statistics/counts.py",
        'check_choice("counting", self.counting, get_args(Counting))',
        "pass",
        "statistics/test_settings.py -k places",
    ),
    Mutation(
        "features longer than 1",
        "statistics/setting_checks.py",
        "jax.vmap(lambda x: clip_by_norm(x, 1.0))(phi)",
        "phi",
        "statistics/test_settings.py -k tracing",
    ),
    Mutation(
        "weights beyond their bound",
        "statistics/setting_checks.py",
        "return jnp.clip(jnp.where(jnp.isnan(weights), 0.0, weights), 0.0, bound)",
        "return weights",
        "statistics/test_search.py -k traced",
    ),
    Mutation(
        "cell numbers of 8 bits",
        "mdp/types.py",
        "jnp.asarray(x).astype(int) for x in",
        "jnp.asarray(x) for x in",
        "statistics/test_search.py -k narrow",
    ),
    Mutation(
        "one draw for all entries",
        "privacy/noise/lattice.py",
        "total + discrete_gaussian(randomness, self.noise, total.shape)",
        "total + discrete_gaussian(randomness, self.noise, ())",
        "audit/test_protocol.py -k no_recipe",
    ),
    Mutation(
        "groups by the position of rows",
        "studies/offline/curated_records.py",
        "return self._data.unit_coins(key, purpose)",
        "return np.random.default_rng(list(key)).random(self.num_units)",
        "audit/test_known_bad.py -k groups-by-row-position",
    ),
)
CERTIFICATES = (
    Mutation(
        "a certificate beside any policy",
        "studies/results/certify.py",
        "if certificate.result_sha256 != policy_sha256(policy):",
        "if False:",
        "test_certify.py -k names_its_policy",
    ),
    Mutation(
        "events that are not the calibrated ones",
        "privacy/accounting/certificate_check.py",
        "problems += _event_problems(certificate, derived)",
        "_event_problems(certificate, derived)",
        "test_certify.py -k contradicts",
    ),
    Mutation(
        "a pool that grew",
        "privacy/accounting/certificate_check.py",
        "if traded and not same(_total",
        "if False and not same(_total",
        "test_certify.py -k pool",
    ),
    Mutation(
        "less noise than certified",
        "privacy/accounting/certificate_check.py",
        "if same(_ratio(law), entry[0], _DRAWN):",
        "if True:",
        "privacy/test_certificate.py",
    ),
    Mutation(
        "anybody's signature",
        "privacy/accounting/signature.py",
        "key.verify(base64.b64decode(signature, validate=True), content)",
        "base64.b64decode(signature, validate=True)",
        "privacy/test_certificate.py",
    ),
    Mutation(
        "somebody else's learner believed",
        "studies/results/certify.py",
        "return [] if authenticated else",
        "return [] if True else",
        "test_certify.py -k needs_a_key",
    ),
    Mutation(
        "exact sizes where they are secret",
        "studies/results/result.py",
        'else {"users", "episodes"}',
        "else set()",
        "test_public.py -k sizes",
    ),
)
BROWSER = (
    Mutation(
        "a browser lies half as often",
        "service/client/privrl-client.mjs",
        "return ((lies << 128n) + lies + truth - 1n) / (lies + truth);",
        "return ((lies << 128n) + lies + truth - 1n) / (lies + truth) / 2n;",
        "service/test_browser_client.py -k vectors",
    ),
    Mutation(
        "a browser's second report replaces the first",
        "service/client/privrl-client.mjs",
        "if (found.bytes || found.ticket.mac !== this.ticket.mac) return found;",
        "",
        "service/test_browser_client.py -k vectors",
    ),
    Mutation(
        "a browser reports once more than a study says",
        "service/client/privrl-client.mjs",
        "this.charges.length - 1",
        "this.charges.length",
        "service/test_browser_client.py -k vectors",
    ),
    Mutation(
        "a browser charges one report of several",
        "service/client/privrl-client.mjs",
        "Array(reports || 1).fill(part.epsilon)",
        "[part.epsilon]",
        "service/test_browser_client.py -k vectors",
    ),
    Mutation(
        "a browser answers any document",
        "service/client/privrl-client.mjs",
        "if (await digest(text) !== hash) refuse(",
        "if (false) refuse(",
        "service/test_chromium.py -k changes",
    ),
    Mutation(
        "a browser takes two plans under one number",
        "service/client/privrl-client.mjs",
        "if (kept.plan !== plan) refuse(",
        "if (false) refuse(",
        "service/test_chromium.py -k changes",
    ),
    Mutation(
        "a browser's ledger forgets other studies",
        "service/client/privrl-client.mjs",
        "all.flatMap((one) => one.epsilon ?? [])",
        "[]",
        "service/test_chromium.py -k ledger",
    ),
    Mutation(
        "a browser reports what may not be on disk",
        "service/client/privrl-client.mjs",
        'if (transaction.durability !== "strict") refuse(',
        "if (false) refuse(",
        "service/test_chromium.py -k nothing_leaves",
    ),
    Mutation(
        "whether a browser reports depends on the answer",
        "service/client/privrl-client.mjs",
        "Math.min(truth, symbols - 1)",
        "truth",
        "service/test_browser_client.py -k depend",
    ),
    Mutation(
        "a browser plays plans with holes",
        "service/client/privrl-client.mjs",
        "if (!full(actions, H,",
        "if (false && !full(actions, H,",
        "service/test_browser_client.py -k hostile",
    ),
)
SERVICE = (
    Mutation(
        "requests with records are counted",
        "service/application.py",
        "            if not private:",
        "            if True:",
        "service/test_operator.py -k record",
    ),
    Mutation(
        "a made-up ticket of an app",
        "service/central.py",
        "if self._signing is not None and hmac.compare_digest(raw[:_MAC_BYTES], self._mac(raw[_MAC_BYTES:])):",
        "if self._signing is not None:",
        "service/test_attacks.py -k nothing_is_found",
    ),
    Mutation(
        "a made-up ticket of a device",
        "studies/local/server.py",
        "if not hmac.compare_digest(ticket.mac, self._mac(ticket)):",
        "if False:",
        "service/test_attacks.py -k nothing_is_found",
    ),
    Mutation(
        "the operator's port under any name",
        "service/operator_endpoints.py",
        'if len(named) != 1 or _PORT.sub("", named[0]) not in call.studies.operator_hosts:',
        "if False:",
        "service/test_operator.py -k host",
    ),
    Mutation(
        "a browser's password changes a study",
        "service/operator_endpoints.py",
        "header if changes else _as_bearer(header)",
        "_as_bearer(header)",
        "service/test_operator.py -k browser",
    ),
    Mutation(
        "a release is used before it is logged",
        "privacy/store/engine.py",
        "if self._moved and self._witness is not None:",
        "if False:",
        "privacy/test_store_log.py -k every_event",
    ),
    Mutation(
        "an audit log without its end",
        "privacy/store/engine.py",
        "if known is not None and len(untold) > 1 and witness.complete and self.one_machine:",
        "if False:",
        "privacy/test_store_log.py -k cut",
    ),
    Mutation(
        "a record that was counted before is quicker",
        "privacy/store/sums.py",
        "if held is not None and marks is None and not new.any():",
        "if False:",
        "privacy/test_store.py -k known_is_committed",
    ),
    Mutation(
        "a database that forgets while it is open",
        "privacy/store/log.py",
        "if self._last is not None and event(self._last.number) != self._last:",
        "if False:",
        "privacy/test_store_log.py -k forgets",
    ),
)
ALL = (*NOISE, *CONTRIBUTIONS, *KEYS, *REDRAWN, *PLACES, *SHARDS, *SETTINGS, *CERTIFICATES, *BROWSER, *SERVICE)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", ALL, ids=lambda m: m.name.replace(" ", "-"))
def test_some_test_fails(mutation: Mutation, tmp_path: Path) -> None:
    if mutation in BROWSER and (shutil.which("node") is None or program() is None):
        pytest.skip(MISSING)
    package = tmp_path / "privrl"
    shutil.copytree(ROOT / "src" / "privrl", package, ignore=shutil.ignore_patterns("__pycache__"))
    mutation.apply(package)
    files, _, chosen = mutation.tests.partition(" -k ")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"tests/{file}" for file in files.split()]
    command += ["-k", chosen] if chosen else []
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 1, f"No test noticed: {mutation.name}.\n{done.stdout[-2000:]}"
    assert " failed" in done.stdout
    print(f"{mutation.name}: {next(line for line in done.stdout.splitlines() if line.startswith('FAILED'))}")  # noqa: T201


def test_the_list_is_up_to_date(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "mutations.md").read_text()
    for mutation in ALL:
        assert f"| {mutation.name} | `{mutation.file}` |" in page
        (tmp_path / mutation.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "src" / "privrl" / mutation.file, tmp_path / mutation.file)
        before = (tmp_path / mutation.file).read_text()
        mutation.apply(tmp_path)
        assert (tmp_path / mutation.file).read_text() != before
        assert all((ROOT / "tests" / file).exists() for file in mutation.tests.partition(" -k ")[0].split())
