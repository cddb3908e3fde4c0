"""Small logs whose right answer was worked out by hand from the rules, not by any program."""

from cases.build import Case
from cases.decode import CASES as DECODE
from cases.device import CASES as DEVICE
from cases.edges import CASES as EDGES
from cases.gaps import CASES as GAPS
from cases.post import CASES as POST
from cases.states import CASES as STATES

CASES: list[Case] = POST + EDGES + STATES + DECODE + DEVICE + GAPS
