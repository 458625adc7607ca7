"""What Gaussian mechanisms cost together, by dp-accounting."""

import logging
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from anchorage.api.errors import AnchorageError, silo


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A Gaussian mechanism that was used several times, each time on a Poisson sample of the images or on all of them."""

    noise: float
    """Noise multiplier: standard deviation of the noise divided by the sensitivity."""
    rate: float = 1.0
    """Probability with which each image is in a sample, independently of all others; 1 for all images."""
    steps: int = 1
    """How often it was used."""


def epsilon(mechanisms: Iterable[Mechanism], delta: float) -> float:
    """Return the ε of all mechanisms together at `delta`; 0 without any, infinite without noise.

    Mechanisms on all images are together one Gaussian mechanism, whose ε is exact (Balle and Wang 2018). With samples among them it is the bound of
    Rényi differential privacy at dp-accounting's orders: a privacy loss distribution is a tenth tighter, but takes gigabytes where noise is small.

    Raises
    ------
    AnchorageError
        dp-accounting is not installed.
    """
    used = Counter[tuple[float, float]]()
    for each in mechanisms:
        used[each.noise, each.rate] += each.steps
    return _epsilon(tuple(sorted((*which, steps) for which, steps in used.items() if steps)), delta)


@lru_cache(maxsize=256)
def _epsilon(used: tuple[tuple[float, float, int], ...], delta: float) -> float:
    if not used:
        return 0.0
    if any(noise <= 0 for noise, _, _ in used):
        return math.inf
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of orders that it leaves out, as it may
    try:
        import dp_accounting  # takes a second, which only those with something to account spend
        from dp_accounting.rdp import RdpAccountant
    except ImportError as error:
        detail = f"{error.name}, which accounts differential privacy, is not installed: pip install dp-accounting"
        raise AnchorageError(silo.ACCOUNTING_MISSING, detail) from error

    if all(rate >= 1 for _, rate, _ in used):
        return float(dp_accounting.get_epsilon_gaussian(sum(n / z**2 for z, _, n in used) ** -0.5, delta))
    accountant = RdpAccountant()
    for noise, rate, steps in used:
        sampled = dp_accounting.PoissonSampledDpEvent(min(rate, 1.0), dp_accounting.GaussianDpEvent(noise))
        accountant.compose(sampled, steps)
    return float(accountant.get_epsilon(delta))
