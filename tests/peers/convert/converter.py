# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's own converter, from the source distribution of llama-cpp-python, run in a child of this process."""
import glob
import os
import subprocess
import sys
import tarfile

VERSION = "llama-cpp-python==0.3.36"
PLAIN, KEY = "--plain-config", "--key="  # flags of ours; KEY: a number that the converter does not write


def fetch(directory):
    """The folder of llama.cpp; downloaded at the first call."""
    pattern = os.path.join(directory, "llama_cpp_python-*", "vendor", "llama.cpp")
    if not glob.glob(pattern):
        os.makedirs(directory, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python",
                        "-d", directory, VERSION], check=True)
        archive = glob.glob(os.path.join(directory, "llama_cpp_python-*.tar.gz"))[0]
        wanted = ("conversion/", "gguf-py/", "convert_hf_to_gguf.py")
        with tarfile.open(archive) as tar:
            tar.extractall(directory, [x for x in tar if x.name.split("vendor/llama.cpp/")[-1].startswith(wanted)],
                           filter="data")
        os.remove(archive)
    return glob.glob(pattern)[0]


def use(directory):
    """Before anything imports gguf: the converter's own."""
    sys.path[:0] = [os.path.join(directory, "gguf-py"), directory]


def read_config_plainly():
    """Where the package's class of a configuration drops what the converter reads."""
    import json
    import conversion.base

    def plain(directory, is_mistral_format):
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
            return json.load(f)

    conversion.base.ModelBase.load_hparams = staticmethod(plain)


def write_keys(flags):
    import gguf
    header = gguf.GGUFWriter.write_header_to_file

    def write(self, **where):
        for flag in flags:
            name, number = flag.removeprefix(KEY).split("=")
            self.add_uint32(f"{self.arch}.{name}", int(number))
        header(self, **where)

    gguf.GGUFWriter.write_header_to_file = write


def replace_vocabularies(pre):
    """The converter finds a pre-tokenizer by a hash of its ids, Hunyuan's tokenizer is code of the published model, of
    Arctic it reads SentencePiece only, and of MiniMax-Text-01 it looks for tokens without an embedding: here the name is
    given. Tensors and keys of the model are not touched."""
    import conversion.arctic
    import conversion.base
    import conversion.deepseek
    import conversion.dots3
    import conversion.hunyuan
    import conversion.minimax
    conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    conversion.deepseek.DeepseekV32Model.set_vocab = lambda self: self._set_vocab_gpt2()  # else of one tokenizer's class
    conversion.dots3.Dots3NoteModel.set_vocab = lambda self: self._set_vocab_gpt2()  # else by a token of the published one
    conversion.hunyuan.HunYuanMoEModel.set_vocab = lambda self: self._set_vocab_gpt2()
    if pre != "spm":
        conversion.arctic.ArcticModel.set_vocab = lambda self: self._set_vocab_gpt2()
    conversion.minimax.MiniMaxText01Model._get_suppress_tokens = lambda self: None


def convert(checkpoint, path, kind, pre, flags, log):
    """None, or why it did not: the last line of its log. A child each, as the converter keeps state in its classes."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with open(log, "w", encoding="utf-8") as f:
                os.dup2(f.fileno(), 1)
                os.dup2(f.fileno(), 2)
            replace_vocabularies(pre)
            if PLAIN in flags:
                read_config_plainly()
            write_keys([x for x in flags if x.startswith(KEY)])
            import convert_hf_to_gguf
            sys.argv = ["convert_hf_to_gguf.py", checkpoint, "--outfile", path, "--outtype", kind.lower(),
                        *[x for x in flags if x != PLAIN and not x.startswith(KEY)]]
            convert_hf_to_gguf.main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException:  # the child must not do the rest of the parent's work
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status if isinstance(status, int) else 1)
    if os.waitpid(child, 0)[1] == 0:
        return None
    with open(log, encoding="utf-8") as f:
        return f.read().strip().splitlines()[-1]
