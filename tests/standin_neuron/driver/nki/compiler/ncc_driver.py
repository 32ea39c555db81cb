"""Stand-in for the driver of nki 0.4; the LNC of kernel and compiler must match."""

import neff_file


class CompileOptions:
    """target, lnc, output_path, artifacts_dir, neuronx_cc_args."""

    def __init__(self, *, target, lnc, output_path, artifacts_dir, neuronx_cc_args):
        self.target, self.lnc, self.output_path, self.arguments = target, lnc, output_path, neuronx_cc_args


class CompiledKernel:
    """A NEFF on disk."""

    @classmethod
    def from_frontend(cls, traced, options):
        """Compile what the frontend found."""
        if (traced.target, traced.lnc) != (options.target, options.lnc):
            raise RuntimeError("NCC_EVRF066: LNC mismatch")
        more = {} if traced.program is None else {"program": traced.program}
        with open(options.output_path, "wb") as file:
            file.write(neff_file.pack(traced.inputs, traced.outputs, lnc=options.lnc, **more))
        made = cls()
        made.neff_path = options.output_path
        return made
