# SPDX-License-Identifier: Apache-2.0
"""Report a machine to the schedulers: python reporter.py agent.conf."""

import contextlib
import sys
import time

from moorage.agent import Bus, BusUnavailable, Reporter
from moorage.scheduler.conf import load
from moorage.scheduler.placement.adapter import make_adapter
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.seed import Provider, seed
from moorage.scheduler.rpc import get_transport

NAME, UUID = "machine-1", "0a5fbd3c-5b0e-4d7e-9d0c-6f1c2ad7a9f4"
TOTALS = {"vcpus_total": 8, "total_usable_ram_mb": 16384, "total_usable_disk_gb": 90}
USED = {"vcpus_used": 0, "disk_mb_used": 0, "free_ram_mb": 16384, "free_disk_mb": 92160}
IDENTITY = {"host": NAME, "nodename": NAME, "uuid": UUID, "cell_uuid": UUID}

conf = load(["--config-file", sys.argv[1]])
amounts = zip(("VCPU", "MEMORY_MB", "DISK_GB"), TOTALS.values(), strict=True)
inventories = {resource_class: {"total": total} for resource_class, total in amounts}
seed(PlacementClient(make_adapter(conf)), [Provider(UUID, NAME, inventories)])
bus = Bus(get_transport(conf), NAME)
reporter = Reporter(bus.cast, reply=bus.reply)
bus.serve(reporter.send_whole_report)  # whenever a scheduler requests it
while True:  # What has changed is sent; without a change, it is a heartbeat.
    with contextlib.suppress(BusUnavailable):  # the next report is whole
        reporter.report(IDENTITY | TOTALS | USED, instances=[])
    time.sleep(5)
