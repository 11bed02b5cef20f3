"""A session with the real SkyPilot, without a network: run by test_sky.py in an environment that has it.

Its home is a folder of our own with two recorded instances; it prints what its optimizer chooses as JSON.
"""

import json
import os
import sys
from pathlib import Path

INSTANCES = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
gpu_1x_a10,A10,1.0,30.0,226.0,1.29,us-east-1,,
gpu_1x_h100_sxm5,H100,1.0,26.0,225.0,4.29,us-east-1,,
"""
ACCELERATORS = "AcceleratorName,Clouds\nA10,\"['Lambda']\"\nH100,\"['Lambda']\"\n"


def main() -> None:
    home, block = Path(sys.argv[1]), sys.argv[2]
    os.environ |= {"HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    folder = home / ".sky" / "catalogs"
    for version in (f"v{number}" for number in range(5, 12)):
        _write(folder / version / "common" / "accelerators.csv", ACCELERATORS)
        _write(folder / version / "common" / "metadata.csv", "GPU,MemoryGB,Manufacturer\nA10,24,NVIDIA\n")
        _write(folder / version / "lambda" / "vms.csv", INSTANCES)

    import sky
    import yaml
    from sky import check

    from epochcast.sky import time_estimator

    check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: [sky.Lambda()]  # without its credentials
    estimate = time_estimator("resnet50", 256, epochs=90, data_set="imagenet")
    said = {
        "assumed": _chosen(sky, None),
        "estimated": _chosen(sky, estimate),
        "seconds": {name: estimate(sky.Resources(accelerators=name)) for name in ("A10", "H100")},
        "resources": str(next(iter(_task(sky, yaml.safe_load(block)).resources)).accelerators),
    }
    print("SAID " + json.dumps(said))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _task(sky: object, config: dict) -> object:
    return sky.Task.from_yaml_config({"run": "python train.py", **config})


def _chosen(sky: object, estimator: object) -> str:
    from sky import OptimizeTarget
    from sky.optimizer import Optimizer

    with sky.Dag() as dag:
        task = sky.Task(run="python train.py")
    dag.add(task) if task not in dag.tasks else None
    task.set_resources({sky.Resources(accelerators="A10:1"), sky.Resources(accelerators="H100:1")})
    if estimator is not None:
        task.set_time_estimator(estimator)
    Optimizer.optimize(dag, minimize=OptimizeTarget.COST, quiet=True)
    return str(task.best_resources.instance_type)


if __name__ == "__main__":
    main()
