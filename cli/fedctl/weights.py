"""The commands of ``fedctl weights``."""

from pathlib import Path
from typing import Annotated

import typer

from fedctl.output import Format, Output

weights_app = typer.Typer(help="Pretrained weights to start from.", no_args_is_help=True)

Network = Annotated[str, typer.Argument(help="Network as spec.model.network names it, such as torchvision/resnet18.")]
Root = Annotated[Path, typer.Option(help="Data root of the coordinating site; they lie in its folder weights.")]


@weights_app.command("pull")
def weights_pull(
    network: Network,
    name: Annotated[
        str,
        typer.Argument(help="The library's name, such as IMAGENET1K_V1, or models:/NAME/VERSION, models:/NAME@ALIAS."),
    ],
    tracking_uri: Annotated[
        str | None, typer.Option(envvar="MLFLOW_TRACKING_URI", help="MLflow that has the registered model.")
    ] = None,
    data_root: Root = Path(),
    output: Output = Format.TABLE,
) -> None:
    """Fetch weights from where their library has them, or of a registered model."""
    from fedctl.pretrained import pull

    pull(network, name, tracking_uri, data_root, output)


@weights_app.command("import")
def weights_import(
    file: Annotated[Path, typer.Argument(help="Safetensors file of the network, or of its library.")],
    network: Network,
    name: Annotated[str, typer.Argument(help="Name for spec.model.weights.")],
    data_root: Root = Path(),
    output: Output = Format.TABLE,
) -> None:
    """Keep the weights of a file."""
    from fedctl.pretrained import import_file

    import_file(file, network, name, data_root, output)


@weights_app.command("list")
def weights_list(data_root: Root = Path(), output: Output = Format.TABLE) -> None:
    """List the weights that are there."""
    from fedctl.pretrained import list_weights

    list_weights(data_root, output)
