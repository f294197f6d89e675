"""`python -m fedssca.deploy.engines.flower KIT` runs the process of a kit: server or site."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from fedssca.deploy.engines.flower.kit import FlowerKit
from fedssca.system import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    logging.captureWarnings(True)
    kit = FlowerKit(Path(sys.argv[1]))
    if kit.kind == "server":
        from fedssca.deploy.engines.flower.superlink import run_server

        run_server(kit)
    else:
        from fedssca.deploy.engines.flower.node import run_node

        run_node(kit)
