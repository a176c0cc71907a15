"""Paths and ports within the pods: one home for what several containers must agree on."""

API_PORT = 8000
PAGE_PORT = 8090
GROUP_PORT = 7600

SOCKET_FOLDER = "/run/pipelineserve"
CONTROL_ADDRESS = f"unix:{SOCKET_FOLDER}/policy.sock"
CONTROL_FOLDER = "/etc/pipelineserve/control"
GROUP_FOLDER = "/etc/pipelineserve/group"
API_FOLDER = "/etc/pipelineserve/api"
TOKEN_FOLDER = "/var/run/secrets/pipelineserve.dev"  # noqa: S105 # a folder
JOURNAL_FOLDER = "/var/lib/pipelineserve"
CACHE_FOLDER = "/var/cache/pipelineserve"
LINK_FOLDER = "/model"
CLAIM_FOLDER = "/claim"
HOME_FOLDER = "/home/pipelineserve"

# Keys of the ConfigMap and names of files; they are the same.
OBJECTIVES = "objectives.json"
CA_BUNDLE = "ca.crt"
GROUP_KEY = "key"
API_KEYS = "keys"
TOKEN = "token"  # noqa: S105 # a file's name

TOKEN_AUDIENCE = "pipelineserve.dev"  # noqa: S105 # who the token is for
