"""How a site starts the process of a job.

The engine's own process at a site loads this module and lives as long as the site does. It neither
computes nor reads data, so nothing here imports JAX or what needs it: that would be 60 MB more.
"""

from __future__ import annotations

from typing import Any

from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle

from fedssca.deploy.engines.nvflare.job_process import ENGINE, OURS

__all__ = ["JobLauncher"]


class JobLauncher(ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a job's process at a site.

    If that process is killed, the site is away; the engine alone would end the whole job.
    """

    def get_command(self, job_meta: dict[str, Any], fl_ctx: Any) -> str:
        """The engine's command, with our module in place of its own."""
        return str(super().get_command(job_meta, fl_ctx)).replace(ENGINE, OURS)

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
        """Start the process as the engine does, but report its end differently."""
        return _JobProcess(process_adapter=super().launch_job(job_meta, fl_ctx).adapter)


class _JobProcess(ProcessHandle):  # type: ignore[misc]
    def poll(self) -> Any:
        """The return code; UNKNOWN for a killed process, so that the server finds out itself."""
        code = self.adapter.poll()
        if code is not None and (code < 0 or code > 128):
            return JobReturnCode.UNKNOWN
        return super().poll()
