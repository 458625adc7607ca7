"""RSCFed: a mean teacher of the silo's own labels the images without a label (METHODS.md 6.10)."""

from anchorage.learning.local_work import RoundWork, Work
from anchorage.learning.mean_teacher import TeacherLosses, teacher_decay
from anchorage.learning.moving_average import MovingAverage

TEACHER = "teacher/"
"""Prefix of the teacher in the silo's kept state."""


def by_mean_teacher(work: RoundWork) -> Work:
    """Return the squared errors beside the supervised losses; the teacher follows every step."""
    images, batching = work.images, work.batching()
    teacher = MovingAverage(work.copy_received(), TEACHER, work.kept)
    losses = TeacherLosses(work.network, teacher, images.views, images.unlabelled, work.run.method.pseudo_labels)
    together, steps = work.beside_labelled(losses.losses(batching, work.draws), batching)
    return Work(
        together,
        steps,
        work.counts(),
        lambda: len(images.unlabelled),
        kept=teacher.kept,
        after_step=lambda: teacher.follow(work.network, teacher_decay(teacher.steps)),
    )
