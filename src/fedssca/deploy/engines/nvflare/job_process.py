"""The process of a job at a site, as NVFlare starts it, which ends with the process that began it.

NVFlare's own tells its parent again and again that it begins, and never ends if there is no parent
any more. The site's part of a job, which ends with its parent too, is not loaded by then.
"""

from __future__ import annotations

import runpy

from fedssca.system import end_with_parent

__all__ = ["ENGINE", "OURS"]

ENGINE = "nvflare.private.fed.app.client.worker_process"
"""The module that NVFlare starts."""
OURS = "fedssca.deploy.engines.nvflare.job_process"
"""This module, which is started in its place."""

if __name__ == "__main__":
    end_with_parent()
    runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)
