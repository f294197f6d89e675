"""`python -m fedssca.deploy.engines.nvflare KIT` runs the engine of a kit: server or site."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from fedssca.deploy.engines.nvflare.kit import NvflareKit
from fedssca.system import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    logging.captureWarnings(True)
    NvflareKit(Path(sys.argv[1])).run()
