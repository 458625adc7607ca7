"""What becomes of batch normalisation: averaged, pooled, counted again, kept at the silo (methods reference, section 1, rules 4 and 5; pitfall 5)."""

import numpy as np
import pytest
import torch
from learning_party import MODEL, Party, images_of, method_of, network_of
from torch import nn

from anchorage.api.errors import AnchorageError, learning
from anchorage.api.model import network_called
from anchorage.api.piece import PIECES
from anchorage.engine.aggregation import weighted_mean
from anchorage.learning.batch_norm import freeze_statistics, recalibrate, replace_by_groups
from anchorage.learning.learners import build_server_learner
from anchorage.learning.model_hooks import augmentation_of
from anchorage.learning.views import Views
from anchorage.learning.weights import layout_of
from anchorage.pieces.batch_norm.pooled import pool_variances
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.transport.tensors.layout import Layout, norm_names
from anchorage.transport.tensors.model import ModelBytes, read_arrays

COUNTED = ("running_mean", "running_var", "num_batches_tracked")
POLICIES = ("average", "pooled", "recalibrate", "local", "static", "frozen")


def party(tmp_path, policy, name="FedAvg", **slots):
    method = method_of(name, batchNorm={policy: {}}, **slots)
    return Party(method, images_of(26), tmp_path, labels="All")


def names_of(party):
    return {t.name for t in party.server.up.tensors}


def of_layers(names):
    return {name for name in names if ".norms." in name}


def counted(arrays):
    return {name: array for name, array in arrays.items() if name.endswith(COUNTED)}


@pytest.mark.parametrize("policy", POLICIES)
def test_what_travels(tmp_path, policy):
    silo = party(tmp_path, policy)
    down, up = {t.name for t in silo.server.down.tensors}, names_of(silo)
    statistics = {n for n in down if n.endswith(COUNTED)}
    missing = {"local": of_layers(down), "static": statistics, "frozen": statistics}.get(policy, set())
    assert len(of_layers(down)) == 20, "four layers: weight, bias, mean, variance, counter"
    assert down - up == missing
    assert silo.train().update is not None


def test_without_batch_normalisation_other_scales_and_shifts_stay():
    unet = PIECES.of("network")["SmallUNet"]().encoder(3, 16)
    names = norm_names(layout_of(unet))
    assert names == {
        f"{path}.{parameter}"
        for path, m in unet.named_modules()
        if isinstance(m, nn.GroupNorm)
        for parameter in ("weight", "bias")
    }
    assert len(names) == 28 and not norm_names(layout_of(PIECES.of("network")["LeafCnn"]().encoder(3, 16)))
    mixed = nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.PReLU(4), nn.Conv2d(4, 4, 1))
    assert norm_names(layout_of(mixed)) == {f"0.{parameter}" for parameter in ("weight", "bias", *COUNTED)}
    assert norm_names(layout_of(mixed[1:])) == {"1.weight", "1.bias"}


@pytest.mark.parametrize("member", ["BasicUNet", "UNet", "SegResNet", "DynUNet"])
def test_scales_and_shifts_of_networks_of_monai_stay(member):
    pytest.importorskip("monai")
    encoder = network_called(f"monai/{member}").encoder(1, 32)
    names = norm_names(layout_of(encoder))
    kinds = (nn.GroupNorm, nn.InstanceNorm2d)
    learnt = {path for path, m in encoder.named_modules(remove_duplicate=False) if isinstance(m, kinds) and m.affine}
    assert {name.rsplit(".", 1)[0] for name in names} == learnt
    assert bool(names) == (member != "UNet"), "whose normalisation has none"


def test_local_layers_stay_and_are_loaded_over_what_is_received(tmp_path):
    silo = party(tmp_path / "a", "local")
    first = silo.digest(1)
    elsewhere = party(tmp_path / "b", "local")
    assert elsewhere.digest(2) != (second := silo.digest(2)), (
        "round 2 goes on from round 1's layers, with the same weights received"
    )
    silo.restart()
    assert silo.digest(2) == second, "also after the trainer was killed"
    other = Party(silo.method, images_of(26, seed=5), tmp_path / "c", labels="All")
    assert other.digest(1) != first


def test_what_silos_keep_the_server_counts_on_its_anchors_to_score_and_to_hand_on(tmp_path):
    silo = party(tmp_path, "local", local={"epochs": 4, "optimiser": {"sgd": {"learningRate": "0.1"}}})
    silo.train()
    received = silo.model.with_tensors(ModelBytes.of(silo.server.up, silo.update))
    handed_on, metrics = silo.server.train(received, 1)
    before, after = received.arrays(), handed_on.arrays()
    assert metrics == {}
    assert {n for n in before if not np.array_equal(before[n], after[n])} == {n for n in before if ".running" in n}
    score = silo.server.evaluate(handed_on, 1).metrics
    assert score == silo.server.evaluate(received, 1).metrics, (
        "also of an asynchronous global model, which nobody trains"
    )
    assert score["accuracy"] > 0.9
    with pytest.raises(AnchorageError, match="needs labelled anchors at the server"):
        build_server_learner(model=MODEL, method=silo.method, seed=1, validation=images_of(30, 8))
    build_server_learner(model=MODEL, method=silo.method, seed=1)


def test_static_statistics_are_those_of_the_anchors_whatever_silos_see(tmp_path):
    silo = party(tmp_path, "static", "SemiFL", pseudoLabels={"threshold": "0"})
    before = counted(silo.model.arrays())
    assert any(np.ptp(a) > 0 for n, a in before.items() if n.endswith("running_mean")), "counted before round 1, too"
    silo.train()
    network = silo.learner._network
    for name, tensor in network.state_dict().items():
        if name.endswith(("running_mean", "running_var")):
            assert np.array_equal(tensor.numpy(), before[name]), name
    after = silo.model.with_tensors(ModelBytes.of(silo.server.up, silo.update))
    trained, _ = silo.server.train(after, 1)
    assert any(not np.array_equal(a, before[n]) for n, a in counted(trained.arrays()).items())


def test_recalibration_without_training_changes_nothing_that_is_learnt(tmp_path):
    silo = party(tmp_path, "recalibrate")
    silo.train()
    received = silo.model.with_tensors(ModelBytes.of(silo.server.up, silo.update))
    model, metrics = silo.server.train(received, 1)
    second, _ = silo.server.train(received, 1)
    assert metrics == {} and model.digest == second.digest
    for name, array in model.arrays().items():
        assert np.array_equal(array, received.arrays()[name]) != name.endswith(COUNTED), name


def test_recounted_statistics_are_those_of_the_images():
    network = network_of("FedAvg").eval()
    views = Views(images_of(40).images, augmentation_of("Digits"), torch.device("cpu"))
    recalibrate(network, views, np.arange(40))
    norm = network.encoder.norms[0]
    with torch.no_grad():
        activations = network.encoder.convolutions[0](views.plain(torch.arange(40))).transpose(0, 1).flatten(1)
    assert torch.allclose(norm.running_mean, activations.mean(1), atol=1e-6)
    assert torch.allclose(norm.running_var, activations.var(1), rtol=1e-5)
    assert norm.momentum == 0.1 and not network.training
    assert norm.num_batches_tracked == 1


def known_statistics(silo):
    """A model whose statistics are those of other images."""
    rng = np.random.default_rng(4)
    arrays = dict(silo.model.arrays())
    for name, array in arrays.items():
        if name.endswith("running_mean"):
            arrays[name] = rng.normal(0, 0.01, array.shape).astype(np.float32)
        if name.endswith("running_var"):
            arrays[name] = rng.uniform(0.1, 0.5, array.shape).astype(np.float32)
    return ModelBytes.from_arrays(silo.server.down, arrays)


@pytest.mark.parametrize("name", ["FedAvg", "SemiFL"])
def test_frozen_layers_normalise_by_what_they_started_from_at_silo_and_server(tmp_path, name):
    """In train mode a network gives what it gives in eval mode; scale and shift are trained."""
    pseudo = {"pseudoLabels": {"threshold": "0"}} if name == "SemiFL" else {}
    silo = party(tmp_path, "frozen", name, **pseudo)
    silo.model = known_statistics(silo)
    silo.train()
    network, images = silo.learner._network, torch.rand(4, 1, 8, 8)
    assert torch.equal(network.train()(images), network.eval()(images))
    received = silo.model.with_tensors(ModelBytes.of(silo.server.up, silo.update))
    trained, _ = silo.server.train(received, 1)
    before, after = silo.model.arrays(), trained.arrays()
    for tensor in before:
        changed = not np.array_equal(before[tensor], after[tensor])
        assert changed == (not tensor.endswith(COUNTED)), tensor


@pytest.mark.parametrize(("channels", "groups"), [(16, 4), (64, 16), (512, 32), (40, 10), (3, 1), (116, 29)])
def test_groups_divide_the_channels_with_four_at_least(channels, groups):
    encoder = torch.nn.Sequential(torch.nn.BatchNorm2d(channels, eps=0.5))
    replace_by_groups(encoder)
    assert isinstance(encoder[0], torch.nn.GroupNorm)
    assert (encoder[0].num_groups, encoder[0].num_channels, encoder[0].eps) == (groups, channels, 0.5)


def test_a_layer_that_does_more_than_normalise_is_not_replaced():
    class Activating(torch.nn.BatchNorm2d):
        pass

    with pytest.raises(AnchorageError, match="found the layer Activating") as caught:
        replace_by_groups(torch.nn.Sequential(Activating(8)))
    assert caught.value.failure is learning.NETWORK_UNUSABLE


def test_group_normalisation_treats_every_image_by_itself(tmp_path):
    silo = party(tmp_path, "groupNorm")
    network, images = silo.learner._network, torch.rand(4, 1, 8, 8)
    assert not [name for name in names_of(silo) if name.endswith(COUNTED)]
    assert torch.allclose(network.train()(images)[:1], network(images[:1]), atol=1e-6)
    assert network.smallest_batch(8) == 1
    assert silo.digest() == party(tmp_path / "again", "groupNorm").digest()
    received = silo.model.with_tensors(ModelBytes.of(silo.server.up, silo.update))
    assert silo.server.evaluate(received, 1).metrics["accuracy"] > 0.3


def test_frozen_statistics_survive_a_training_pass():
    network = network_of("FedAvg")
    freeze_statistics(network)
    before = network.encoder.norms[0].running_mean.clone()
    network.train()(torch.rand(4, 1, 8, 8))
    assert torch.equal(network.encoder.norms[0].running_mean, before)


def models(count, seed=0, wide=70_000):
    """Models with running values behind a tensor that puts them across a chunk's edge (1 MiB), and a counter."""
    layout = Layout.of(
        [("w", "F32", (4 * wide - 6,)), ("bn.running_mean", "F32", (9,)), ("bn.running_var", "F32", (9,)),
         ("bn.weight", "F32", (9,)), ("bn.num_batches_tracked", "I64", ())]
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    made = []
    for index in range(count):
        arrays = {t.name: rng.normal(size=t.shape).astype(np.float32) for t in layout.tensors if t.dtype == "F32"}
        arrays["bn.running_var"] = np.abs(arrays["bn.running_var"])
        made.append(ModelBytes.from_arrays(layout, {**arrays, "bn.num_batches_tracked": np.array(3 + index)}))
    return layout, made


def test_pooled_variance_is_that_of_all_data():
    layout, sources = models(4)
    weights = [10.0, 0.0, 30.0, 60.0]
    mean = weighted_mean(sources, weights, layout)
    pooled = pool_variances(mean, sources, weights)
    share = np.array(weights) / sum(weights)
    means, variances = (
        np.stack([s.arrays()[f"bn.running_{n}"] for s in sources]).astype(float) for n in ("mean", "var")
    )
    between = share @ (means - share @ means) ** 2
    arrays = pooled.arrays()
    assert np.allclose(arrays["bn.running_var"], share @ variances + between, rtol=1e-6)
    assert arrays["bn.num_batches_tracked"] == 3, "counters are copied, never averaged"
    for name, array in mean.arrays().items():
        assert name == "bn.running_var" or np.array_equal(array, arrays[name]), name
    assert pooled.digest == ModelBytes.from_arrays(layout, arrays).digest
    other = pool_variances(mean, sources[::-1], weights[::-1]).arrays()["bn.running_var"]
    assert np.allclose(other, arrays["bn.running_var"], rtol=1e-6), "the order of silos does not matter"


def test_models_without_batch_normalisation_are_taken_as_they_are():
    layout = Layout.of([("w", "F32", (3,))])
    model = ModelBytes.from_arrays(layout, {"w": np.ones(3, np.float32)})
    assert pool_variances(model, [model], [1.0]).digest == model.digest


def test_cosine_falls_over_the_rounds_and_nesterov_looks_ahead():
    network = network_of("FedAvg")
    optimiser = Sgd(learning_rate="0.4", momentum="0.9", nesterov="Enabled", schedule="Cosine")
    rates = [optimiser.build(network, done=done).param_groups[0]["lr"] for done in (0, 0.25, 0.5, 1)]
    assert rates == pytest.approx([0.4, 0.4 * (1 + 0.5**0.5) / 2, 0.2, 0])
    assert optimiser.build(network).nesterov
    plain = Sgd(learning_rate="0.4", momentum="0", nesterov="Enabled")
    sgd = plain.build(network, done=0.5)
    assert sgd.param_groups[0]["lr"] == 0.4 and not sgd.nesterov


def test_the_step_size_rises_for_ten_epochs_before_it_falls(tmp_path):
    """Methods reference, 5.3, FedBarlow."""
    network = network_of("FedBarlow")
    optimiser = Sgd(learning_rate="0.4", schedule="WarmUpCosine")
    rates = [
        optimiser.build(network, done=epochs / 40, epochs=epochs, classifier_rate=0.1) for epochs in (0, 4, 9, 20, 40)
    ]
    falling = [(1 + np.cos(np.pi * done)) / 2 for done in (0, 0.1, 0.225, 0.5, 1)]
    expected = [share * risen for share, risen in zip(falling, (0.1, 0.5, 1, 1, 1), strict=True)]
    for group, rate in enumerate((0.4, 0.1)):
        assert [sgd.param_groups[group]["lr"] for sgd in rates] == pytest.approx([rate * s for s in expected])
    silo = Party(method_of("FedBarlow", local={"epochs": 2}), images_of(26), tmp_path)  # of 5 rounds
    rates = [silo.learner._optimiser({}, number).param_groups[0]["lr"] for number in (1, 3, 5)]
    expected = [0.008 * risen * (1 + np.cos(np.pi * done)) / 2 for risen, done in ((0.1, 0), (0.5, 0.4), (0.9, 0.8))]
    assert rates == pytest.approx(expected)


def test_silos_follow_the_schedule(tmp_path):
    constant, cosine = (
        Party(
            method_of("FedAvg", local={"optimiser": {"sgd": {"schedule": kind}}}),
            images_of(26),
            tmp_path / kind,
            labels="All",
        )
        for kind in ("Constant", "Cosine")
    )
    assert constant.train(1).update == cosine.train(1).update
    assert constant.train(2).update != cosine.train(2).update
    moved = [
        sum(
            np.abs(read_arrays(p.server.up, p.update)[n] - a).sum()
            for n, a in p.model.arrays().items()
            if "weight" in n
        )
        for p in (constant, cosine)
    ]
    assert moved[1] < moved[0]


@pytest.mark.parametrize("name", ["FedAnchor", "SemiFL", "FedAvgSemi", "CBAFed", "FedAvgFixMatch"])
def test_labels_are_made_in_eval_mode_and_losses_in_train_mode(tmp_path, name):
    silo = Party(method_of(name, pseudoLabels={"threshold": "0.2"}), images_of(26, labelled=False), tmp_path)
    passes = []
    silo.learner._network.encoder.register_forward_pre_hook(
        lambda encoder, _: passes.append((encoder.training, torch.is_grad_enabled()))
    )
    silo.train()
    assert set(passes) == {(False, False), (True, True)}
