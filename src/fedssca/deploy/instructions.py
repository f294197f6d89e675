"""The README.md in every kit: what the person who receives the kit does with it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from fedssca.run.schema import ProjectFile

__all__ = ["FILE", "write_instructions"]

FILE = "README.md"

SITE = """\
# The kit of {party}, a site of the project {project}

With this folder your institution takes part in a training with others. Your rows stay on your
machine. This folder holds your private key (`startup/{key}`): give it to nobody. If somebody else
has had it, ask for new kits for all parties.

You need Python 3.11 or newer, and a connection from this machine to {server}, port {port}. Nobody
connects to your machine, so that no port of yours must be open.

## 1. Install

Install fedssca {version} with the extra `{extra}` (docs/install.md in its repository). All parties
need the same version. Then

    fedssca doctor

checks the installation, the disk and the clock.

## 2. Say where your rows are

Write a file `site.toml`, outside of this folder. It never leaves your machine.

    path = "patients.csv"      # a table with a line of names; or .parquet, .npz
    label = "outcome"          # the column that is to be predicted
    # id = "patient"           # the column that identifies rows; needed if sites hold columns

    [limits]
    # least_rows = 10          # no number is told about fewer rows than this

For a database, columns to be left out, and all limits, see docs/config.md, "site.toml".

## 3. Look at what would leave this machine

Ask for the file of the run, here `run.toml`. Nothing is sent by this command:

    fedssca deploy check site.toml run.toml --sites {sites}

## 4. Take part

In the folder that contains `{folder}`:

    fedssca deploy site {folder} --data site.toml

The command works until you press Ctrl-C. It takes part in every run that your limits allow.

Do not use the other programs in `startup`: they belong to the engine ({engine}), and do not know
your site.toml.
"""

SERVER = """\
# The kit of the server of the project {project}

This folder holds the server's private key: give it to nobody. Whoever runs the server must not hold
the folder `ca`, with which certificates of sites can be made.

1. Install fedssca {version} with the extra `{extra}` (docs/install.md in its repository) on the
   machine {server}. All parties need the same version.
2. Open port {port} for the sites and for the submitter. No other port is needed.
3. Start the server in the folder that contains `{folder}`. It works until you press Ctrl-C.

        fedssca deploy server {folder}

Runs and their checkpoints are kept below this folder: there must be room for them.

Do not use the other programs in `startup`: they belong to the engine ({engine}).
"""

SUBMIT = """\
# The kit of the submitter of the project {project}

With this folder runs are started and watched. It holds a private key: give it to nobody.

Install fedssca {version} with the extra `{extra}` (docs/install.md in its repository). This machine
must reach {server}, port {port}. When the server and the sites ({names}) are running, in the folder
that contains `{folder}`:

    fedssca deploy status --kit {folder}
    fedssca deploy submit run.toml --kit {folder} --out runs/joint

`run.toml` is a file as for `fedssca run`. The second command shows the rounds, and copies the run
directory to this machine when they are done. If it is interrupted,
`fedssca deploy submit --kit {folder} --resume runs/joint` continues. Afterwards

    fedssca certificate verify runs/joint --kit {folder}

checks the certificate of a run with a confidence, and the signatures of the sites.
"""

CA = """\
# The key of the certificate authority of the project {project}

Whoever has this folder can make certificates in the name of every site and of the server. Keep it
offline, and away from whoever runs the server. It is not needed for runs.
"""


def write_instructions(
    project: ProjectFile, made: Mapping[str, Path], engine: str, extra: str, key: str
) -> None:
    """Write README.md into every kit. `key` is the name of the private key of a site."""
    texts = {"server": SERVER, "submit": SUBMIT, "ca": CA}
    for party, folder in made.items():
        text = texts.get(party, SITE).format(
            party=party,
            project=project.name,
            server=project.server,
            port=project.port,
            names=", ".join(project.sites),
            sites=len(project.sites),
            folder=folder.name,
            version=version("fedssca"),
            engine=engine,
            extra=extra,
            key=key,
        )
        (folder / FILE).write_text(text)
