import os

# Triton decides when it is imported whether kernels are compiled or interpreted, FlashInfer
# which architectures it builds for, and SGLang imports both: so these tests get a process
# of their own, started by the test of the same name.
collect_ignore = []
if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore.append("interpreted")
if not os.environ.get("FLASHINFER_CUDA_ARCH_LIST"):
    collect_ignore.append("built")
