# SPDX-License-Identifier: Apache-2.0
"""nova and moorage in one process, imported in either order."""

import json
import subprocess
from pathlib import Path

import pytest

from ..fixtures.nova_peer import peer_or_skip

ROOT = Path(__file__).parents[2]
MESSAGE = ROOT / "tests/data/wire/numa-pinned.json"

pytestmark = [pytest.mark.deep, pytest.mark.peer]

NOVA = "import nova.objects; nova.objects.register_all()"
OURS = "import moorage.objects"
PROGRAM = """
import json, sys
from oslo_versionedobjects.base import VersionedObjectRegistry

{imports}
from nova.objects.base import NovaObject

message = json.load(open(sys.argv[1]))["message"]["args"]["spec_obj"]


def same(value):
    if isinstance(value, dict):
        return {{
            k: sorted(v) if k == "nova_object.changes" else same(v)
            for k, v in value.items()
        }}
    return [same(item) for item in value] if isinstance(value, list) else value


novas = NovaObject.obj_from_primitive(message)
ours = moorage.objects.WireObject.obj_from_primitive(message)
again = json.loads(json.dumps([novas.obj_to_primitive(), ours.obj_to_primitive()]))
from_ours = NovaObject.obj_from_primitive(again[1])
registered = VersionedObjectRegistry.obj_classes()["RequestSpec"]
print(json.dumps({{
    "nova": type(novas).__module__,
    "ours": type(ours).__module__,
    "children": [type(novas.flavor).__module__, type(ours.flavor).__module__],
    "equal": [same(written) == same(message) for written in again],
    "nova reads ours": type(from_ours).__module__,
    "registered": [cls.__module__ for cls in registered],
    "nova.objects": nova.objects.RequestSpec.__module__,
}}))
"""


@pytest.mark.parametrize(
    "imports", [(NOVA, OURS), (OURS, NOVA)], ids=["nova-first", "moorage-first"]
)
def test_both_read_and_write_with_their_own_classes(imports):
    program = PROGRAM.format(imports="\n".join(imports))

    run = subprocess.run(
        [peer_or_skip(), "-W", "ignore", "-c", program, MESSAGE],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert run.returncode == 0, run.stderr
    results = json.loads(run.stdout.splitlines()[-1])
    assert results == {
        "nova": "nova.objects.request_spec",
        "ours": "moorage.objects.request_spec",
        "children": ["nova.objects.flavor", "moorage.objects.request_parts"],
        "equal": [True, True],
        "nova reads ours": "nova.objects.request_spec",
        "registered": ["nova.objects.request_spec"],
        "nova.objects": "nova.objects.request_spec",
    }
