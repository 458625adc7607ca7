"""Noise on a silo's updates, and the file of its policy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from silo_fakes import LAYOUT, FakeLearner, model_of, terms_of, train_task

from anchorage.api.errors import AnchorageError
from anchorage.api.single import read_document
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.repeating import RepeatingLearner
from anchorage.transport.messages import Announcement, Task
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes, read_arrays
from anchorage_silo.policy import DEFAULT_MINIMUM_IMAGES, Policy
from anchorage_silo.privacy import PrivateLearner
from anchorage_silo.protection import Protection
from anchorage_silo.verdict import Past, Request, RequestKind, judge

ONE = model_of(1.0)


def announced(policy: Policy, images: int, *, update: bool = True) -> None:
    asked = Request(RequestKind.UPDATE, terms_of("FedAvg"), "1.train", 1, "d", frozenset(), images, update, images)
    judge(policy, asked, Past()).enforce()


class TestPrivateLearner:
    def train(
        self, clip: float | None, std: float | None, seed: int | None = None, ratio: float | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        buffers, model = MemoryBuffers(), model_of(1.0)
        learner = PrivateLearner(
            FakeLearner(),
            LAYOUT,
            LAYOUT,
            Protection(clip_norm=clip, noise_std=std, noise_seed=seed, noise_ratio=ratio),
        )
        announced = learner.train(train_task(model), model.buffer(), buffers.update, lambda done, total: None)
        update = buffers.update(LAYOUT.nbytes)
        assert announced.update == Manifest.of(LAYOUT.digest, update)
        assert announced.metrics == ({"noise_ratio": ratio} if ratio else {})
        arrays = read_arrays(LAYOUT, update)
        assert arrays["count"].tolist() == [1, 2, 3]
        return arrays["weight"] - np.float64(1.0), arrays

    def test_clips_the_whole_delta_to_its_norm(self) -> None:
        delta, arrays = self.train(clip=2.0, std=None)
        norm = np.sqrt((delta**2).sum() + ((arrays["bn.running_var"] - 1.0) ** 2).sum())
        assert norm == pytest.approx(2.0, rel=1e-3)
        assert np.ptp(delta) == 0.0

    def test_a_delta_within_the_norm_stays_as_it_is(self) -> None:
        delta, _ = self.train(clip=1e6, std=None)
        assert (delta == 1.0).all()

    def test_noise_has_its_deviation_and_its_seed(self) -> None:
        delta, _ = self.train(clip=0.0, std=0.5, seed=3)
        assert delta.std() == pytest.approx(0.5, rel=0.01) and abs(delta.mean()) < 0.01
        assert np.array_equal(delta, self.train(clip=0.0, std=0.5, seed=3)[0])
        assert not np.array_equal(delta, self.train(clip=0.0, std=0.5, seed=4)[0])

    @pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("protection", [Protection(clip_norm=1.0, noise_std=0.1), Protection(noise_ratio=1.0)])
    def test_a_statistic_that_is_not_finite_takes_no_protection_off_the_others(
        self, number: float, protection: Protection
    ) -> None:
        """A server can have one in running statistics, which training does not use."""
        buffers, model = MemoryBuffers(), model_of(1.0)
        received = model.buffer().copy()
        entry = LAYOUT.by_name["bn.running_var"]
        received[entry.offset : entry.offset + 4].view("<f4")[:] = number
        learner = PrivateLearner(FakeLearner(), LAYOUT, LAYOUT, protection)
        with np.errstate(invalid="ignore"), pytest.raises(AnchorageError, match="ANC-3004"):
            learner.train(train_task(model), received, buffers.update, lambda done, total: 0)

    def test_without_a_seed_no_two_runs_are_alike(self) -> None:
        assert not np.array_equal(self.train(clip=None, std=0.1)[0], self.train(clip=None, std=0.1)[0])

    def test_every_model_of_an_update_is_clipped_and_has_noise_of_its_own(self) -> None:
        buffers, model = MemoryBuffers(), model_of(1.0)
        private = PrivateLearner(FakeLearner(), LAYOUT, LAYOUT, Protection(clip_norm=0.0, noise_std=0.5, noise_seed=3))
        task = replace(train_task(model), repetitions=2)
        announced = RepeatingLearner(private).train(task, model.buffer(), buffers.update, lambda done, total: 0)
        update = buffers.update(2 * LAYOUT.nbytes)
        assert announced.update == Manifest.of(LAYOUT.digest, update)
        first, second = (read_arrays(LAYOUT, part)["weight"] - np.float64(1.0) for part in np.split(update, 2))
        assert np.array_equal(first, self.train(clip=0.0, std=0.5, seed=3)[0])
        assert second.std() == pytest.approx(0.5, rel=0.01) and abs(np.corrcoef(first, second)[0, 1]) < 0.01

    def test_relative_noise_is_as_large_as_the_change_of_its_array(self) -> None:
        """Of running_var's two numbers the draws are too few to tell; variances stay variances."""
        for ratio in (0.5, 2.0):
            delta, arrays = self.train(clip=None, std=None, seed=3, ratio=ratio)
            assert (delta - 1.0).std() == pytest.approx(ratio, rel=0.01) and delta.mean() == pytest.approx(
                1.0, abs=0.03
            )
            assert (arrays["bn.running_var"] >= 0).all()
        clipped, _ = self.train(clip=2.0, std=None, seed=3, ratio=1.0)
        assert np.linalg.norm(clipped - clipped.mean()) == pytest.approx(2.0, rel=0.02), (
            "the change is scaled down first"
        )
        assert np.array_equal(delta, self.train(clip=None, std=None, seed=3, ratio=2.0)[0])
        assert not np.array_equal(self.train(None, None, ratio=1.0)[0], self.train(None, None, ratio=1.0)[0])

    @pytest.mark.parametrize(
        ("before", "after", "factor"),
        [(1.0, 2.0, np.log(2)), (2.0, 1.0, np.log(2)), (1.0, 0.001, 1.0), (0.0, 1.0, 1.0)],
    )
    @pytest.mark.parametrize("ratio", [0.5, 1.25])
    def test_relative_noise_multiplies_variances_and_never_by_much(
        self, before: float, after: float, factor: float, ratio: float
    ) -> None:
        layout = Layout.of([("bn.running_var", "F32", (40_000,))])
        model = ModelBytes.from_arrays(layout, {"bn.running_var": np.full(40_000, before, np.float32)})
        buffers = MemoryBuffers()

        class Learner(FakeLearner):
            def train(self, task: Task, model: Any, out: Any, progress: Any) -> Announcement:
                update = out(layout.nbytes)
                update.view("<f4")[:] = after
                return Announcement(task.id, {"train": 20}, {}, {}, Manifest.of(layout.digest, update))

        learner = PrivateLearner(
            Learner(),
            layout,
            layout,
            Protection(clip_norm=None, noise_std=None, noise_seed=3, noise_ratio=ratio),
        )
        learner.train(train_task(ONE), model.buffer(), buffers.update, lambda done, total: None)
        noise = np.log(read_arrays(layout, buffers.update(layout.nbytes))["bn.running_var"] / after)
        assert noise.std() == pytest.approx(ratio * factor, rel=0.02) and abs(noise.mean()) < 0.02

    def test_an_array_that_did_not_change_has_no_relative_noise(self) -> None:
        delta, arrays = self.train(clip=0.0, std=None, ratio=1.0)
        assert not delta.any() and (arrays["bn.running_var"] == 1.0).all()

    def test_variances_stay_variances(self) -> None:
        _, arrays = self.train(clip=None, std=1000.0, seed=1)
        assert (arrays["bn.running_var"] >= 0).all() and (arrays["bn.running_var"] == 0).any()

    def test_an_inactive_silo_stays_inactive(self) -> None:
        learner = PrivateLearner(
            FakeLearner(inactive=True),
            LAYOUT,
            LAYOUT,
            Protection(clip_norm=1.0, noise_std=1.0, noise_seed=None),
        )
        task = Task("t", train_task(ONE).kind, 1, ONE.manifest)
        assert learner.train(task, ONE.buffer(), MemoryBuffers().update, lambda d, t: 0).update is None


class TestPolicyFile:
    def test_every_field_is_optional_and_typed(self, tmp_path: Path) -> None:
        path = tmp_path / "policy.yaml"
        path.write_text('allowedMethods: [FedAvg]\nclipNorm: "1.5"\nmaximumRounds: 3\n')
        policy = read_document(path, Policy)
        assert policy.allowed_methods == ("FedAvg",) and policy.clip_norm == "1.5" and policy.noise_std is None

    @pytest.mark.parametrize(
        ("text", "ratio"),
        [
            ('relativeNoise: "1.5"\n', 1.5),
            ('relativeNoise: "1.5"\nclipNorm: "1"\n', 1.5),
            ('relativeNoise: "1.5"\nnoiseStd: "0"\n', 1.5),
            ('relativeNoise: "1.5"\nnoiseStd: "0.1"\n', None),
            ('relativeNoise: "0"\n', None),
            ('noiseStd: "0.1"\n', None),
            ('noiseStd: "0"\n', None),
            ("maximumRounds: 3\n", 1.0),
            ("privacyBudget: {epsilon: '8', delta: '0.1', dpSgd: {clipNorm: '1', noiseMultiplier: '1'}}\n", None),
        ],
    )
    def test_relative_noise_counts_where_no_other_noise_is_set_and_is_the_default(
        self, tmp_path: Path, text: str, ratio: float | None
    ) -> None:
        path = tmp_path / "policy.yaml"
        path.write_text(text)
        assert read_document(path, Policy).noise_ratio == ratio

    @pytest.mark.parametrize(
        ("fields", "least"),
        [
            ({}, DEFAULT_MINIMUM_IMAGES),
            ({"maximum_rounds": 3, "clip_norm": "1"}, DEFAULT_MINIMUM_IMAGES),
            ({"minimum_samples": 4}, 4),
            ({"relative_noise": "0"}, 0),
            ({"relative_noise": "0.5"}, 0),
            ({"noise_std": "0"}, 0),
        ],
    )
    def test_an_update_of_few_images_leaves_only_where_noise_or_a_number_is_stated(
        self, fields: dict[str, Any], least: int
    ) -> None:
        policy = Policy(**fields)
        announced(policy, least)
        if least:
            with pytest.raises(AnchorageError, match="ANC-2212"):
                announced(policy, least - 1)

    def test_a_silo_that_trained_on_nothing_may_say_so(self) -> None:
        announced(Policy(), 0, update=False)
        with pytest.raises(AnchorageError, match="fewer than 16 images"):
            announced(Policy(), 0)

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("allowedMethod: [FedAvg]\n", "ANC-1007"),
            ("maximumRounds: 3\nclipNorm: 1.5\n", "ANC-1011"),
            ("minimumSamples: 0\n", "ANC-1010"),
            ("allowedMethods: FedAvg\n", "ANC-1009"),
            ("a: [\n", "ANC-1002"),
            ("", "ANC-1004"),
        ],
    )
    def test_a_mistake_is_told_with_its_code_and_place(self, tmp_path: Path, text: str, code: str) -> None:
        path = tmp_path / "policy.yaml"
        path.write_text(text)
        with pytest.raises(AnchorageError, match=f"{code}.*policy.yaml"):
            read_document(path, Policy)
