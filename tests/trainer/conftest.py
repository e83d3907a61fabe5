"""Four devices, which are one processor, for the tests that need TensorFlow: it fixes its devices when it is first used."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def four_devices(request: pytest.FixtureRequest) -> None:
    if any(item.get_closest_marker("tensorflow") for item in request.session.items):
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
