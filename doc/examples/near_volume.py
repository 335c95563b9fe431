# SPDX-License-Identifier: Apache-2.0
"""Place instances close to a volume, with a Cinder of one volume."""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from uuid import uuid4

from moorage.objects import Flavor, RequestSpec
from moorage.scheduler.conf import load
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler, build

CONTEXT = {"request_id": "req-1", "project_id": "demo", "user_id": "demo"}
VOLUME = "0c6df2a5-5a3c-4ba3-a4b5-8a9c2f1f1a0e"
MISSING = "3d1f5b6e-8a38-4b3f-9a26-6a7c1f0c9a11"


class OneVolume(BaseHTTPRequestHandler):
    """Answers as Cinder does to an administrator."""

    def do_GET(self) -> None:
        """Return the volume, or 404."""
        is_known = self.path == f"/v3/volumes/{VOLUME}"
        volume = {
            "id": VOLUME,
            "os-vol-host-attr:host": "ceph1@rbd#pool",
            "os-vol-tenant-attr:tenant_id": "demo",
        }
        self.send_response(200 if is_known else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"volume": volume} if is_known else {}).encode())

    def log_message(self, *args: object) -> None:
        """Log nothing."""


def select(scheduler: Scheduler, hints: Mapping[str, list[str]]) -> list[str]:
    """Return the racks of the chosen host and its alternates."""
    instance = str(uuid4())
    spec = RequestSpec(
        flavor=Flavor(vcpus=2, memory_mb=4096, root_gb=20, ephemeral_gb=0, swap=0),
        num_instances=1,
        instance_uuid=instance,
        project_id="demo",
        scheduler_hints=hints,
    )
    [hosts] = scheduler.select_destinations(
        CONTEXT, spec, [instance], return_objects=True, return_alternates=True
    )
    racks = {"node1": "r1", "node2": "r1", "node3": "r2", "node4": "r2"}
    return [racks.get(selection.service_host, "no rack") for selection in hosts]


def main() -> None:
    """Select hosts near to a volume."""
    cinder = HTTPServer(("127.0.0.1", 0), OneVolume)
    threading.Thread(target=cinder.serve_forever, daemon=True).start()
    conf = load(config_files=[])
    inventory = Path(__file__).with_name("near_volume.yaml")
    conf.set_override("inventory_file", str(inventory), group="moorage")
    conf.set_override("levels", ["rack", "row"], group="locality")
    conf.set_override("weight_multiplier", 100, group="locality")
    url = f"http://127.0.0.1:{cinder.server_port}/v3"
    conf.set_override("endpoint_template", url, group="cinder")
    scheduler = build(conf)
    scheduler.start()
    try:
        print("near it:", select(scheduler, {"near_volume": [VOLUME]}))
        print("in its rack:", select(scheduler, {"same_rack_volume": [VOLUME]}))
        try:
            select(scheduler, {"same_rack_volume": [MISSING]})
        except NoValidHost as error:
            print(error)
        select(scheduler, {"near_volume": [MISSING]})
        for attachment in scheduler.decisions.newest()[0].attachments:
            print(attachment)
    finally:
        scheduler.stop()
        cinder.shutdown()
        cinder.server_close()


if __name__ == "__main__":
    main()
