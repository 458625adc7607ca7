"""Closed-form classifiers on a frozen encoder: GH-OFL, FedCGS, ridge regression (methods reference, N3), guesses; and components."""

from anchorage.methods.preset import Preset, slots
from anchorage.pieces.server_training.moments import ClassMoments
from anchorage.pieces.server_training.principal_components import FindComponents

_TO_SERVER = (
    "each silo's class histogram, the sums of its features per class and the products of two features: of a class of fewer than "
    "minimumCount images nothing"
)

MOMENTS_HEAD = Preset(
    slots=slots("MomentsHead", server_training=ClassMoments()),
    summary="Silos send sums of frozen features per class, once; the server computes the classifier from them, without training.",
    setting="labels anywhere: at silos, at some, in part, or at the server only (guesses: Estimated)",
    labels=("All", "Partial"),
    reveals_to_server=_TO_SERVER,
    reveals_to_silos="the classifier made of all silos' sums",
    source="GH-OFL and FedCGS, as read in their public code, and ridge regression; methods reference, N3, equations N12 to N23",
)

SHARES_HEAD = Preset(
    slots=slots(
        "SharesHead",
        server_training=ClassMoments(
            shrinkage="0.1", first_shrinkage="0.9", prior="Uniform", guesses="Auto", counting="Soft"
        ),
    ),
    summary="Silos count frozen features again with guessed classes, corrected to each silo's class shares; validation images choose what counts.",
    setting="few labels, at the server, at one silo or in part; silos whose class mix differs",
    labels=("None", "All", "Partial"),
    reveals_to_server=f"{_TO_SERVER}; guesses included, so that a histogram estimates the class mix of a silo without labels",
    reveals_to_silos="the classifiers made of all silos' sums, which one the validation images chose, and how often each takes a class of these "
    "images for another",
    source="Anchorage's own: a linear discriminant that is made again of guesses, on the moments of the methods reference, N3; shares of "
    "classes after Saerens, Latinne and Decaestecker (2002) and after Lipton, Wang and Smola (2018)",
)

PRINCIPAL_COMPONENTS = Preset(
    slots=slots("PrincipalComponents", server_training=FindComponents()),
    summary="A first stage: silos send sums of frozen features over all images, once; the server finds the components that classifiers then see.",
    setting="before SharesHead, MomentsHead or a trained head on a frozen encoder (spec.warmUp, with spec.model.principalComponents)",
    labels=("None", "All", "Partial"),
    reveals_to_server="the number of a silo's images, the sum of its features and the products of two features, once; of fewer than minimumCount "
    "images nothing",
    reveals_to_silos="the directions in which the features of all silos' images vary most, and their mean",
    source="principal component analysis of the pooled moments of the methods reference, N3; Anchorage's own use of it",
)
