"""The files of a Flower app that trains as run.toml says."""

from __future__ import annotations

import tomli_w

from fedssca.deploy.engines.flower.fits import FITS
from fedssca.run.schema import ProjectFile

__all__ = ["PACKAGE", "PROJECT_FILE", "RUN_FILE", "app_files"]

PACKAGE = "fedssca_app"
"""The package with the two apps."""

RUN_FILE, PROJECT_FILE = "run.toml", "project.toml"
"""The run, and the parties of a deployment; both travel with the app."""

HEAD = """\
# A Flower app that trains with limits: `flwr run` starts it. What it trains stands in run.toml.

"""

SETTINGS = """\
# Read this before you call Flower's commands:  set -a; . ./flower.env; set +a
# Flower reports nothing to its makers, looks for no new version and installs no packages.
FLWR_TELEMETRY_ENABLED=0
FLWR_DISABLE_UPDATE_CHECK=1
FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
RAY_USAGE_STATS_ENABLED=0
JAX_PLATFORMS=cpu
"""

SERVER = '''\
"""The ServerApp: it carries out the run of run.toml."""

from pathlib import Path

from fedssca.deploy.engines.flower.app import server_app

app = server_app(Path(__file__).parents[1])
'''

CLIENT = '''\
"""The ClientApp: a site of the run. In a simulation it holds its share of the data of run.toml."""

from fedssca.deploy.engines.flower.app import client_app

app = client_app()
'''

README = """\
# A Flower app with limits

`run.toml` says what is trained, on which data and with which limits. `project.toml` lists the
sites of a deployment. Both travel with the app.

    set -a; . ./flower.env; set +a        # no telemetry, no update check, no installation

## Simulation

    pip install 'fedssca[flower-simulation]'
    flwr run . local --stream --federation-config "num-supernodes={sites}"

Every simulated SuperNode is a site with its share of the data of `run.toml`. The log names the run
directory, which is below the folder `out` of pyproject.toml.

## Real sites

    fedssca deploy provision project.toml --out kits --engine flower

The kits hold keys and certificates in the format of Flower's commands. At the server:

    flower-superlink --host 0.0.0.0 --port {port} --enable-supernode-auth \\
        --ssl-ca-certfile kits/server/startup/rootCA.pem \\
        --ssl-certfile kits/server/startup/party.crt \\
        --ssl-keyfile kits/server/startup/party.key

Write the server's address into Flower's file config.toml (in the folder `~/.flwr`), and register
the keys of the sites:

    [superlink.study]
    address = "{server}:{port}"
    root-certificates = "/absolute/path/kits/submit/startup/rootCA.pem"

    flwr supernode register kits/site-1/startup/node.pub study

At each site, with its own kit and its own site.toml, one of these two commands. The first one is
faster, and runs installed code only:

    fedssca deploy site kits/site-1 --data site.toml

    flower-supernode --superlink {server}:{port} \\
        --root-certificates kits/site-1/startup/rootCA.pem \\
        --auth-supernode-private-key kits/site-1/startup/node.key \\
        --node-config 'kit="/absolute/path/kits/site-1" data="/absolute/path/site.toml"'

Every `flower-supernode` listens on a port of its own machine, 9094 by default. A second one on the
same machine needs another: add `--port 9095`.

Then, from any machine that reaches the server:

    flwr run . study --stream

Anybody who reaches this SuperLink can start apps on it, because Flower's open edition does not ask
who calls. `fedssca deploy server` and `fedssca deploy submit` close that door.

## Settings

    flwr run . local --stream --run-config 'set="algorithm.rounds=20 privacy.secure_sum=true"'
    flwr run . local --stream --run-config 'resume="<the name of a run directory>"'
"""


def app_files(project: ProjectFile, run: str, out: str) -> dict[str, str]:
    """The files of the app by their paths; `run` is the text of run.toml.

    `out` is the folder for run directories.
    """
    about = {
        "project": {
            "name": "fedssca-app",
            "version": "1.0.0",
            "description": "Federated training with limits",
            "license": "Apache-2.0",
            "dependencies": [f"flwr=={FITS}*", "fedssca[flower]"],
        },
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "tool": {
            "hatch": {"build": {"targets": {"wheel": {"packages": ["."]}}}},
            "flwr": {
                "app": {
                    "publisher": "fedssca",
                    "fab-include": [f"{PACKAGE}/*.py", RUN_FILE, PROJECT_FILE],
                    "components": {
                        "serverapp": f"{PACKAGE}.server_app:app",
                        "clientapp": f"{PACKAGE}.client_app:app",
                    },
                    "config": {"set": "", "out": out, "resume": "", "wait": 300},
                }
            },
        },
    }
    return {
        "pyproject.toml": HEAD + tomli_w.dumps(about),
        "README.md": README.format(
            server=project.server, port=project.port, sites=len(project.sites)
        ),
        "flower.env": SETTINGS,
        RUN_FILE: run,
        f"{PACKAGE}/__init__.py": '"""A Flower app that trains with limits."""\n',
        f"{PACKAGE}/server_app.py": SERVER,
        f"{PACKAGE}/client_app.py": CLIENT,
    }
