"""Clusters for people: `python -m kube build | up NAME | down NAME | exec NAME -- COMMAND ...`."""

import argparse
import os
import sys

from kube.cluster import Cluster
from kube.components import Components
from kube.requirements import missing


def main() -> None:
    """Carry out one command."""
    parser = argparse.ArgumentParser(prog="python -m kube", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="compile what clusters are made of")
    commands.add_parser("missing", help="say what this machine lacks for clusters")
    commands.add_parser("up", help="start a cluster").add_argument("name")
    commands.add_parser("down", help="stop it and remove what it left").add_argument("name")
    execute = commands.add_parser("exec", help="run a command in its network, with its kubeconfig")
    execute.add_argument("name")
    execute.add_argument("words", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.command == "build":
        sys.stdout.write(f"{Components.build().folder}\n")
    elif arguments.command == "missing":
        lacks = missing()
        sys.stdout.write("".join(f"{each}\n" for each in lacks))
        sys.exit(1 if lacks else 0)
    elif arguments.command == "up":
        cluster = Cluster(arguments.name)
        cluster.up()
        (cluster.folder / "owner").write_text("1")  # it is to outlive this command
        sys.stdout.write(f"{cluster.kubectl.kubeconfig}\n")
    elif arguments.command == "down":
        Cluster(arguments.name).down()
    else:
        cluster = Cluster(arguments.name)
        path = f"{cluster.components.folder}:{os.environ['PATH']}"
        words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
        command = [*cluster.network.entering, *(words or ["bash"])]
        os.execvpe(command[0], command, {**cluster.kubectl.environment, "PATH": path})


if __name__ == "__main__":
    main()
