"""People who return, and what goes wrong if the accounting assumes that they come once."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from privrl.audit.attacks.channel_attack import ChannelAttack
from privrl.audit.bounds import bound_epsilon
from privrl.audit.known_bad.case import CONFIDENCE, DELTA, EPSILON, Audited, case
from privrl.audit.protocol.episode_ends import PATIENCE
from privrl.audit.protocol.return_visits import attack_return_visits
from privrl.audit.sensitivity import find_farthest
from privrl.audit.surface.neighbouring_records import make_record_pool, pick_records
from privrl.audit.surface.recorded_run import RunTranscript, short_run
from privrl.audit.worlds import tiny_world
from privrl.learners.tabular.ucbvi import UCBVI
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import Central
from privrl.studies.live.agent import Agent
from privrl.studies.live.arrivals import Ticket
from privrl.studies.live.patience import Patience
from privrl.studies.study import Study

_OFTEN = Participation(3, 1)
_PRIVATE = Central(epsilon=EPSILON, delta=DELTA)


@case(
    paper="practice",
    trials=10_000,
    flaw="a person comes three times, and the noise is that of people who come once",
    proof="their terms are in three columns of the encoder, whose sum is longer than one",
)
def noise_for_one_visit(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """A stream of counts with a person in the first three blocks, who has one of two records each time."""
    attack = attack_visits(_PRIVATE, flawed)
    found = bound_epsilon(attack.scores(key, trials), DELTA, CONFIDENCE, gaussian=True)
    blocks = len(attack.transcript.ends)
    return Audited(EPSILON, found, "epsilon", found > EPSILON, f"{blocks} blocks, {_OFTEN.times} visits")


def attack_visits(private: Central, flawed: bool) -> ChannelAttack:
    """Attack a stream of counts with a person in the first three blocks; `flawed` noise is for one block."""
    world = tiny_world()
    learner = UCBVI(world.rewards, world.horizon, first_block=2, growth=1.5)
    ends = short_run(learner, private, _OFTEN)
    study = Study.online(learner, private, ends[-1], ONCE if flawed else _OFTEN)
    nothing = (None,) * (len(ends) + 1)  # counts depend on no plan
    run = RunTranscript(learner, private, study.ledger, study.channels(), ends, nothing, ())
    records = make_record_pool(world, np.random.default_rng(0), limit=200)
    first, second, _ = find_farthest(run.queries_about(0)[0].answers(records))
    pattern = tuple(range(_OFTEN.times))
    return ChannelAttack(run, (pattern, pattern), pick_records(records, np.array([first, second])))


class _Numbered(Patience):
    """Every visit is a place of its own, so a return takes the number of a person who comes later."""

    def _key(self, user: str, visit: str) -> str:
        return f"{user} {visit}"

    def arrive_all(
        self, came: Sequence[tuple[object, object]], closed: int, groups: Sequence[str] | None = None
    ) -> list[Ticket]:
        return super(Patience, self).arrive_all(came, closed, groups)


@case(
    paper="practice",
    trials=1,
    flaw="a return takes a number, and blocks are ranges of numbers",
    proof="a person who returns shifts all people after them, some to another block: many terms change",
)
def returns_take_numbers(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Twelve people; in one world one of them returns."""
    del trials
    world = tiny_world()
    learner = UCBVI(world.rewards, world.horizon, first_block=2, growth=1.5)
    people = 12
    places = 12 * people if flawed else people

    def make(store: ReleaseStore, clock: Callable[[], float]) -> Agent:
        agent = Agent(
            learner,
            _PRIVATE,
            num_users=places,
            store=store,
            patience=PATIENCE,
            clock=clock,
            key=key,
            max_episodes_per_unit=_OFTEN.times,
        )
        if flawed:
            numbered = _Numbered(store, learner.blocks(places), PATIENCE, clock, Participation(_OFTEN.times))
            agent._arrivals = agent._plans._arrivals = numbered
        return agent

    rows = jax.vmap(world.rollout, in_axes=(None, 0))(world.uniform_policy(), jax.random.split(key, people))
    finding = attack_return_visits(
        make, jax.tree.map(np.asarray, rows), tuple(learner.blocks(people).tolist()), _OFTEN.times
    )
    rate = float(bool(finding.found))
    return Audited(0.0, rate, "success rate", bool(finding.found), "; ".join(finding.found[:1]))


CASES = (noise_for_one_visit, returns_take_numbers)
