"""What updates cost of a privacy budget, and what it takes out of an announcement."""

from dataclasses import dataclass, replace
from pathlib import Path

from anchorage.api.errors import AnchorageError, silo
from anchorage.api.method import Local
from anchorage.api.metric_names import EPSILON
from anchorage.api.run import RunDescription
from anchorage.engine.accounting import Mechanism
from anchorage.learning.poisson import PoissonBatches
from anchorage.transport.messages import Announcement
from anchorage_silo.ledger import PrivacyLedger
from anchorage_silo.policy import Policy, PrivacyBudget


@dataclass(frozen=True)
class BudgetGuard:
    """A hospital's privacy budget in one run.

    Without DP-SGD the silo is the unit: its whole update is clipped to the norm C, so that two sets of images, however different, give updates at
    most 2 C apart. Every update is one Gaussian mechanism with that sensitivity, and nothing amplifies it. With DP-SGD one image is the
    unit, and every step is a Gaussian mechanism on a Poisson sample.
    """

    policy: Policy
    budget: PrivacyBudget
    run: RunDescription
    ledger: PrivacyLedger

    @classmethod
    def of(cls, policy: Policy, run: RunDescription, state: Path) -> "BudgetGuard | None":
        """Return the guard of a policy; None without a budget. `state` is the agent's folder."""
        budget = policy.privacy_budget
        return None if budget is None else cls(policy, budget, run, budget.open(state))

    def check(self, mechanism: Mechanism, task: str) -> None:
        """Check that a mechanism fits into what is left of the budget.

        Raises
        ------
        AnchorageError
            It does not; or the ledger cannot be read.
        """
        self.ledger.check(mechanism, federation=self.run.federation, task=task)

    def mechanism(self, round_number: int, images: int, repetitions: int = 1) -> Mechanism:
        """Return what an update of a round costs on so many images."""
        return mechanism_of(self.policy, self.budget, self.run.stage(round_number).method.local, images, repetitions)

    def spend(self, announcement: Announcement, mechanism: Mechanism, images: int) -> tuple[Announcement, float]:
        """Write down what an update costs; return its announcement with nothing that was computed of the images, and the ε spent so far.

        The number of images is taken as known: a silo tells it when it joins.

        Raises
        ------
        AnchorageError
            There is something that is not accounted, the budget is spent, or the ledger cannot be written.
        """
        update = announcement.update
        if update is None or announcement.auxiliary:
            detail = (
                f"task {announcement.task}: an announcement with {', '.join(announcement.auxiliary) or 'no update'}"
            )
            raise AnchorageError(silo.NOT_ACCOUNTED, detail)
        federation = self.run.federation
        spent = self.ledger.spend(mechanism, federation=federation, task=announcement.task, digest=update.digest)
        metrics = {EPSILON: spent, "delta": self.ledger.delta}
        return replace(announcement, samples={"train": images}, metrics=metrics), spent


def mechanism_of(policy: Policy, budget: PrivacyBudget, local: Local, images: int, repetitions: int) -> Mechanism:
    """Return what an update costs that `local` trains on so many images."""
    if budget.dp_sgd is None:
        noise = float(policy.noise_std or 0) / (2 * float(policy.clip_norm or 0))
        return Mechanism(noise, steps=repetitions)
    batches = PoissonBatches.of(images, local.batch_size, local.epochs, local.steps)
    return Mechanism(float(budget.dp_sgd.noise_multiplier), batches.rate, batches.steps * repetitions)
