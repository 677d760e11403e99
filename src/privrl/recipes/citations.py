"""What to cite: the papers behind a recipe, or behind a learner and a privatizer, as BibTeX.

A recipe and its algorithm carry their papers with them; what is added here are those of the trust model.
"""

from privrl.contracts.learner import AbstractLearner, AbstractOnlineLearner
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, Local
from privrl.privacy.trust.shuffled import Shuffled
from privrl.recipes.all_recipes import algorithms, find
from privrl.recipes.papers import key_of, papers
from privrl.recipes.recipe import Trust

OWN_ENTRY = """@software{privrl,
  title = {privrl: reinforcement learning that keeps its users' secrets},
  author = {{The privrl authors}},
  year = {2026}
}"""
_TRUST: dict[Trust, tuple[str, ...]] = {
    "none": (),
    "central": ("dwork-mcsherry-nissim-smith", "dong-roth-su"),
    "local": ("dwork-mcsherry-nissim-smith", "warner", "ye-barg"),
    "shuffle": ("feldman-mcmillan-talwar", "ye-barg"),
}
_JOINT = ("kearns-pai-roth-ullman", "fichtenberger-henzinger-upadhyay")
_TRUSTED: tuple[tuple[type[AbstractPrivatizer], Trust], ...] = (
    (Central, "central"),
    (Local, "local"),
    (Shuffled, "shuffle"),
)


def citation(
    learner: str | AbstractLearner | type[AbstractLearner], privatizer: AbstractPrivatizer | None = None
) -> str:
    """BibTeX of the papers behind a recipe, or behind a learner and a privatizer.

    >>> print(privrl.citation("dp-apvi").splitlines()[0])
    @inproceedings{qiao-wang,
    >>> long = privrl.citation(privrl.APVI, privrl.Central(epsilon=1, delta=1e-6))
    >>> long == privrl.citation("dp-apvi")
    True

    Arguments:
        learner: the name of a recipe, or a learner or its class. If no recipe uses the learner, only the papers of the
            privatizer are known.
        privatizer: with a learner.

    Raises:
        ValueError: there is no such recipe.
    """
    return "\n\n".join(_entries(learner, privatizer))


def citation_keys(
    learner: str | AbstractLearner | type[AbstractLearner], privatizer: AbstractPrivatizer | None = None
) -> tuple[str, ...]:
    """The keys of what `citation` writes out, the algorithm's own first."""
    return tuple(key_of(entry) for entry in _entries(learner, privatizer))


def _entries(
    learner: str | AbstractLearner | type[AbstractLearner], privatizer: AbstractPrivatizer | None
) -> tuple[str, ...]:
    if isinstance(learner, str):
        recipe = find(learner)
        kind, trust, own = recipe.algorithm.learner, recipe.trust, recipe.cites + recipe.algorithm.cites
    else:
        kind = learner if isinstance(learner, type) else type(learner)
        trust = next((name for trusted, name in _TRUSTED if isinstance(privatizer, trusted)), "none")
        own = algorithms[kind].cites if kind in algorithms else ()
    joint = _JOINT if trust == "central" and issubclass(kind, AbstractOnlineLearner) else ()
    return tuple(dict.fromkeys((*own, *(papers[key] for key in _TRUST[trust] + joint))))
