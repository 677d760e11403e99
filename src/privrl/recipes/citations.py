"""What to cite: the papers behind a recipe, or behind a learner and a privatizer, as BibTeX.

A learner names its sources in its own file, as tags such as `[qiao-wang A1:4]` or as authors and year in its docstring
(`Azar, Osband and Munos 2017`), and what builds it for a recipe may have tags of its own. What these name is what users
are told to cite, so there is no second list to keep in step.
"""

import functools
import inspect
import re
import sys
import typing
from dataclasses import dataclass

from privrl.contracts.learner import AbstractLearner, AbstractOnlineLearner
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central, Local
from privrl.privacy.trust.shuffled import Shuffled
from privrl.recipes.registry import get


@dataclass(frozen=True)
class Reference:
    """One publication; `authors` as "First Last" in order, `venue` the journal or the proceedings."""

    kind: typing.Literal["article", "inproceedings", "misc"]
    authors: tuple[str, ...]
    title: str
    venue: str
    year: int
    pages: str = ""

    def bibtex(self, key: str) -> str:
        """The entry as BibTeX."""
        place = {"article": "journal", "inproceedings": "booktitle", "misc": "howpublished"}[self.kind]
        fields = {"author": " and ".join(self.authors), "title": self.title, place: self.venue, "year": str(self.year)}
        if self.pages:
            fields["pages"] = self.pages
        lines = [f"  {name:<12} = {{{value}}}," for name, value in fields.items()]
        return "\n".join([f"@{self.kind}{{{key},", *lines, "}"])

    def named_in(self, text: str) -> bool:
        """Whether a docstring names it: by all surnames and the year, or by the first with "et al." and the year."""
        *others, last = [author.split()[-1] for author in self.authors]
        names = f"{', '.join(others)} and {last}" if others else last
        return f"{names} {self.year}" in text or (len(others) > 1 and f"{others[0]} et al. {self.year}" in text)


references: dict[str, Reference] = {
    "qiao-wang": Reference(
        "inproceedings",
        ("Dan Qiao", "Yu-Xiang Wang"),
        "Offline Reinforcement Learning with Differential Privacy",
        "Advances in Neural Information Processing Systems 36",
        2023,
    ),
    "sahu": Reference(
        "misc",
        ("Sharan Sahu",),
        "Towards Optimal Differentially Private Regret Bounds in Linear {MDP}s",
        "arXiv:2504.09339",
        2025,
    ),
    "liao-he-gu": Reference(
        "inproceedings",
        ("Chonghua Liao", "Jiafan He", "Quanquan Gu"),
        "Locally Differentially Private Reinforcement Learning for Linear Mixture {M}arkov Decision Processes",
        "Asian Conference on Machine Learning",
        2022,
    ),
    "chowdhury-zhou-shroff": Reference(
        "inproceedings",
        ("Sayak Ray Chowdhury", "Xingyu Zhou", "Ness Shroff"),
        "Adaptive Control of Differentially Private Linear Quadratic Systems",
        "IEEE International Symposium on Information Theory",
        2021,
    ),
    "wang-hegde": Reference(
        "inproceedings",
        ("Baoxiang Wang", "Nidhi Hegde"),
        "Privacy-Preserving {Q}-Learning with Functional Noise in Continuous Spaces",
        "Advances in Neural Information Processing Systems 32",
        2019,
    ),
    "jin-yang-wang": Reference(
        "inproceedings",
        ("Ying Jin", "Zhuoran Yang", "Zhaoran Wang"),
        "Is Pessimism Provably Efficient for Offline {RL}?",
        "International Conference on Machine Learning",
        2021,
    ),
    "azar-osband-munos": Reference(
        "inproceedings",
        ("Mohammad Gheshlaghi Azar", "Ian Osband", "Rémi Munos"),
        "Minimax Regret Bounds for Reinforcement Learning",
        "International Conference on Machine Learning",
        2017,
    ),
    "jin-yang-wang-jordan": Reference(
        "inproceedings",
        ("Chi Jin", "Zhuoran Yang", "Zhaoran Wang", "Michael I. Jordan"),
        "Provably Efficient Reinforcement Learning with Linear Function Approximation",
        "Conference on Learning Theory",
        2020,
    ),
    "he-zhao-zhou-gu": Reference(
        "inproceedings",
        ("Jiafan He", "Heyang Zhao", "Dongruo Zhou", "Quanquan Gu"),
        "Nearly Minimax Optimal Reinforcement Learning for Linear {M}arkov Decision Processes",
        "International Conference on Machine Learning",
        2023,
    ),
    "luyo-garcelon-lazaric-pirotta": Reference(
        "misc",
        ("Paul Luyo", "Evrard Garcelon", "Alessandro Lazaric", "Matteo Pirotta"),
        "Differentially Private Exploration in Reinforcement Learning with Linear Representation",
        "arXiv:2112.01585",
        2021,
    ),
    "ngo-vietri-wu": Reference(
        "inproceedings",
        ("Dung Daniel Ngo", "Giuseppe Vietri", "Zhiwei Steven Wu"),
        "Improved Regret for Differentially Private Exploration in Linear {MDP}",
        "International Conference on Machine Learning",
        2022,
    ),
    "dong-roth-su": Reference(
        "article",
        ("Jinshuo Dong", "Aaron Roth", "Weijie J. Su"),
        "{G}aussian Differential Privacy",
        "Journal of the Royal Statistical Society: Series B",
        2022,
        "3--37",
    ),
    "fichtenberger-henzinger-upadhyay": Reference(
        "inproceedings",
        ("Hendrik Fichtenberger", "Monika Henzinger", "Jalaj Upadhyay"),
        "Constant Matters: Fine-grained Error Bound on Differentially Private Continual Observation",
        "International Conference on Machine Learning",
        2023,
    ),
    "dwork-mcsherry-nissim-smith": Reference(
        "inproceedings",
        ("Cynthia Dwork", "Frank McSherry", "Kobbi Nissim", "Adam Smith"),
        "Calibrating Noise to Sensitivity in Private Data Analysis",
        "Theory of Cryptography Conference",
        2006,
        "265--284",
    ),
    "kearns-pai-roth-ullman": Reference(
        "inproceedings",
        ("Michael Kearns", "Mallesh M. Pai", "Aaron Roth", "Jonathan Ullman"),
        "Mechanism Design in Large Games: Incentives and Privacy",
        "Innovations in Theoretical Computer Science",
        2014,
    ),
    "ernst-geurts-wehenkel": Reference(
        "article",
        ("Damien Ernst", "Pierre Geurts", "Louis Wehenkel"),
        "Tree-Based Batch Mode Reinforcement Learning",
        "Journal of Machine Learning Research 6",
        2005,
        "503--556",
    ),
    "watkins-dayan": Reference(
        "article",
        ("Christopher J. C. H. Watkins", "Peter Dayan"),
        "{Q}-Learning",
        "Machine Learning 8",
        1992,
        "279--292",
    ),
    "abadi-chu-goodfellow": Reference(
        "inproceedings",
        (
            "Martín Abadi",
            "Andy Chu",
            "Ian Goodfellow",
            "H. Brendan McMahan",
            "Ilya Mironov",
            "Kunal Talwar",
            "Li Zhang",
        ),
        "Deep Learning with Differential Privacy",
        "ACM Conference on Computer and Communications Security",
        2016,
        "308--318",
    ),
    "hall-rinaldo-wasserman": Reference(
        "article",
        ("Rob Hall", "Alessandro Rinaldo", "Larry Wasserman"),
        "Differential Privacy for Functions and Functional Data",
        "Journal of Machine Learning Research 14",
        2013,
        "703--727",
    ),
    "feldman-mcmillan-talwar": Reference(
        "inproceedings",
        ("Vitaly Feldman", "Audra McMillan", "Kunal Talwar"),
        "Hiding Among the Clones: A Simple and Nearly Optimal Analysis of Privacy Amplification by Shuffling",
        "IEEE Symposium on Foundations of Computer Science",
        2021,
    ),
    "ye-barg": Reference(
        "article",
        ("Min Ye", "Alexander Barg"),
        "Optimal Schemes for Discrete Distribution Estimation under Locally Differential Privacy",
        "IEEE Transactions on Information Theory",
        2018,
    ),
    "privrl": Reference(
        "misc",
        ("privrl",),
        "{privrl}: Reinforcement Learning That Keeps Its Users' Secrets",
        "Software",
        2026,
    ),
    "warner": Reference(
        "article",
        ("Stanley L. Warner",),
        "Randomized Response: A Survey Technique for Eliminating Evasive Answer Bias",
        "Journal of the American Statistical Association",
        1965,
        "63--69",
    ),
}

_CENTRAL = ("dwork-mcsherry-nissim-smith", "dong-roth-su")
_JOINT = ("kearns-pai-roth-ullman", "fichtenberger-henzinger-upadhyay")
_LOCAL = ("dwork-mcsherry-nissim-smith", "warner", "ye-barg")
_SHUFFLE = ("feldman-mcmillan-talwar", "ye-barg")


def citation(
    learner: str | AbstractLearner | type[AbstractLearner], privatizer: AbstractPrivatizer | None = None
) -> str:
    """BibTeX of what stands behind a recipe (by name), or behind a learner and a privatizer.

    `citation("dp-apvi")`, or `citation(learner, Central(epsilon=1.0, delta=1e-6))`.
    """
    return "\n\n".join(references[key].bibtex(key) for key in citation_keys(learner, privatizer))


def citation_keys(
    learner: str | AbstractLearner | type[AbstractLearner], privatizer: AbstractPrivatizer | None = None
) -> tuple[str, ...]:
    """The keys of `references` that `citation` writes out, the algorithm's own first."""
    if isinstance(learner, str):
        recipe = get(learner)
        build = recipe.learner.func if isinstance(recipe.learner, functools.partial) else recipe.learner
        kind, trust = typing.get_type_hints(build)["return"], str(recipe.trust)  # what it is annotated to return
        keys = _tagged(build.__doc__ or "") + _named_in(kind)
    else:
        kind = learner if isinstance(learner, type) else type(learner)
        trust = "none"
        for trusted, name in ((Central, "central"), (Local, "local"), (Shuffled, "shuffle")):
            trust = name if isinstance(privatizer, trusted) else trust
        keys = _named_in(kind)
    if trust == "central":
        keys += _CENTRAL + (_JOINT if issubclass(kind, AbstractOnlineLearner) else ())
    elif trust == "local":
        keys += _LOCAL
    elif trust == "shuffle":
        keys += _SHUFFLE
    return tuple(dict.fromkeys(keys))


def _tagged(text: str) -> tuple[str, ...]:
    tags = set(re.findall(r"\[([a-z-]+)[\] ]", text))
    return tuple(key for key in references if key in tags)


def _named_in(kind: type[AbstractLearner]) -> tuple[str, ...]:
    module = sys.modules[kind.__module__]
    docstring = " ".join((module.__doc__ or "").split())
    tagged = _tagged(inspect.getsource(module))
    return tuple(key for key, entry in references.items() if key in tagged or entry.named_in(docstring))
