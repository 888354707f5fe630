libdevice_a_SOURCES = src/device/device.c src/device/cpu.c
