"""Who deliberates: personas, their library, how far apart they are, which are chosen, what each reads."""

from romanesco.personas._deal import split
from romanesco.personas._diversity import (
    DeclaredDiversity,
    DistanceMatrix,
    DiversityEstimator,
    declared_distances,
    distance,
)
from romanesco.personas._library import builtin_personas, find_persona, load_personas
from romanesco.personas._payload import Clip, Excerpt, Payloads, marker, render_payload
from romanesco.personas._persona import (
    AXES,
    EVALUATORS,
    FRAME_CHALLENGER,
    GENERATORS,
    Persona,
    PersonaRole,
)
from romanesco.personas._select import Ensemble, select_ensemble

__all__ = [
    "AXES",
    "EVALUATORS",
    "FRAME_CHALLENGER",
    "GENERATORS",
    "Clip",
    "DeclaredDiversity",
    "DistanceMatrix",
    "DiversityEstimator",
    "Ensemble",
    "Excerpt",
    "Payloads",
    "Persona",
    "PersonaRole",
    "builtin_personas",
    "declared_distances",
    "distance",
    "find_persona",
    "load_personas",
    "marker",
    "render_payload",
    "select_ensemble",
    "split",
]
