"""The add-on: our control of a real SGLang's scheduler, loaded through SGLang's own plugins."""
