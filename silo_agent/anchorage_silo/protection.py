"""What is done to an update before it leaves, as the hospital's policy and the run's method ask together (`Policy.protection`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Protection:
    """Clipping and noise on a silo's updates."""

    clip_norm: float | None = None
    """Maximum Euclidean norm of an update's change of the model; None does not clip."""
    noise_std: float | None = None
    """Standard deviation of the noise added to every number; None adds none."""
    noise_ratio: float | None = None
    """Norm of the noise added to each array in place of `noise_std`, as a multiple of the norm of that array's change; None adds none."""
    noise_seed: int | None = None
    """Seed of the noise, for tests; None draws from the operating system."""
    always: bool = False
    """Whether an update leaves whatever came of the training, as under a privacy budget."""

    @property
    def changes_updates(self) -> bool:
        """Whether it does anything."""
        return any(each is not None for each in (self.clip_norm, self.noise_std, self.noise_ratio))
