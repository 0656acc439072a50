# On a machine with an AMD GPU and a ROCm build of PyTorch, from the repository's root.
python -c "import torch; print(torch.version.hip, torch.cuda.get_device_properties(0).gcnArchName)"

# "native" for this machine alone; for a wheel, name every chip that it shall serve.
export PYTORCH_ROCM_ARCH="gfx90a;gfx942"
USE_CUDA=1 pip install --no-build-isolation -v .

# ROCm tensors are "cuda" tensors, so the GPU tests are the same ones.
python -m pytest -q tests/test_rms_norm.py
rocprofv3 --kernel-trace --stats --output-format csv --output-directory profile -- \
    python -m pytest -q tests/test_rms_norm.py -k half
