"""``fedctl authority``: a new certificate authority in the place of a federation's, while it runs."""

import typer

from fedctl.arguments import Context, Folder, Namespace, Run

authority_app = typer.Typer(help="The certificate authority of a federation.", no_args_is_help=True)


@authority_app.command("replace")
def authority_replace(
    name: Run = None, workdir: Folder = None, namespace: Namespace = None, context: Context = None
) -> None:
    """Make a new certificate authority, trusted beside the present one; silos get certificates of it within minutes."""
    from fedctl.choice import Place
    from fedctl.new_authority import replace

    replace(name, Place(workdir, namespace, context))


@authority_app.command("finish")
def authority_finish(
    name: Run = None, workdir: Folder = None, namespace: Namespace = None, context: Context = None
) -> None:
    """Trust the new certificate authority alone, when every silo has a certificate of it."""
    from fedctl.choice import Place
    from fedctl.new_authority import finish

    finish(name, Place(workdir, namespace, context))
