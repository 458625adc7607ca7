"""``fedctl authority``: a new certificate authority in the place of a run's, while it runs."""

import typer

from fedctl.arguments import Folder, Run

authority_app = typer.Typer(help="The certificate authority of a run on this machine.", no_args_is_help=True)


@authority_app.command("replace")
def authority_replace(name: Run = None, workdir: Folder = None) -> None:
    """Make a new certificate authority, trusted beside the present one; silos get certificates of it within minutes."""
    from fedctl.new_authority import replace

    replace(name, workdir)


@authority_app.command("finish")
def authority_finish(name: Run = None, workdir: Folder = None) -> None:
    """Trust the new certificate authority alone, when every silo has a certificate of it."""
    from fedctl.new_authority import finish

    finish(name, workdir)
